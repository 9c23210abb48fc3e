//go:build race

package driver_test

// raceDetector says whether the test runs under the race detector, which multiplies memory: limits are not checked
// then.
const raceDetector = true
