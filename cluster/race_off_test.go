//go:build !race

package cluster

// raceDetector says whether the test runs under the race detector.
const raceDetector = false
