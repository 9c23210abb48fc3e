package fsm

import "github.com/outspan/outspan/model"

// How far the wall clock of an entry may differ from what cluster time suggests. A larger difference is believed once
// entries have carried it for wallProof.
const (
	wallSlack  = 5 * model.Second     // how much the clocks of servers may differ
	wallGap    = 30 * 24 * model.Hour // for the first entry of a new leader: all servers may have been down that long
	wallProof  = model.Minute
	latestWall = 253_402_300_799_999 // the end of the year 9999; later times can't be formatted
)

// WallDoubt is a wall clock that entries carry and that is not believed yet.
type WallDoubt struct {
	Since model.Time `cbor:"1,keyasint,omitempty"` // cluster time of the first of these entries; 0 means there is no doubt
	Wall  int64      `cbor:"2,keyasint,omitempty"` // the wall clock of that entry
}

// tellTime takes over the clocks of an entry. Cluster time only grows. If the wall clock jumps beyond the limits above,
// the jump is not believed at first: s.Wall goes on with cluster time. How long rows are kept depends on cluster time
// alone.
func (s *State) tellTime(e Entry, newTerm bool) {
	told := min(max(e.Wall, 0), latestWall)
	expected := min(s.WallAt(e.At), latestWall)
	s.Now = max(s.Now, e.At)
	limit := wallSlack
	if newTerm {
		limit = wallGap
	}
	switch {
	case s.Wall == 0:
		s.Wall = told
	case apart(told, expected) <= wallSlack:
		s.Wall, s.WallDoubt = max(s.Wall, told), WallDoubt{}
	case apart(told, expected) <= limit, s.doubted(told) && s.Now >= s.WallDoubt.Since.Add(wallProof):
		s.Wall, s.WallDoubt = told, WallDoubt{}
	case s.doubted(told):
		s.Wall = expected
	default:
		s.Wall, s.WallDoubt = expected, WallDoubt{Since: s.Now, Wall: told}
	}
}

// WallAt returns what the wall clock shows at a cluster time that is not before s.Now.
func (s *State) WallAt(now model.Time) int64 { return s.Wall + int64(max(now.Sub(s.Now), 0)) }

// doubted reports whether a wall clock agrees with the one that is in doubt.
func (s *State) doubted(told int64) bool {
	d := s.WallDoubt
	return d.Since != 0 && apart(told, d.Wall+int64(s.Now.Sub(d.Since))) <= wallSlack
}

func apart(a, b int64) model.Duration { return model.Duration(max(a, b) - min(a, b)) }
