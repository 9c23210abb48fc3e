//go:build race

package driver_test

// raceDetector reports whether the test runs under the race detector. Tests don't check the use of memory under it,
// because the detector multiplies that use.
const raceDetector = true
