//go:build !race

package driver_test

// raceDetector says whether the test runs under the race detector.
const raceDetector = false
