//go:build race

package cluster

// raceDetector: see skipRaftRace.
const raceDetector = true
