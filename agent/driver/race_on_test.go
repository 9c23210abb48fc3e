//go:build race

package driver_test

// raceDetector reports whether the test runs under the race detector. The detector multiplies the use of memory, so
// tests then don't check that.
const raceDetector = true
