//go:build race

package driver_test

// raceDetector multiplies memory, so limits on it are not checked.
const raceDetector = true
