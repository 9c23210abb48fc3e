//go:build !race

package cluster

// raceDetector is true if the tests run under the race detector.
const raceDetector = false
