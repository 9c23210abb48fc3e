package fsm

import "github.com/outspan/outspan/model"

// The wall clock of an entry may differ by at most wallSlack or wallGap from the expected one, which advances with
// cluster time. A larger difference is accepted only after entries have had it for wallProof.
const (
	wallSlack  = 5 * model.Second     // how much the clocks of servers may differ
	wallGap    = 30 * 24 * model.Hour // for the first entry of a new leader: all servers may have been down that long
	wallProof  = model.Minute
	latestWall = 253_402_300_799_999 // the end of the year 9999; later times can't be formatted
)

// WallDoubt is a wall clock that recent entries have and that is not accepted yet.
type WallDoubt struct {
	Since model.Time `cbor:"1,keyasint,omitempty"` // cluster time of the first of these entries; 0 if there is none
	Wall  int64      `cbor:"2,keyasint,omitempty"` // Unix ms in that first entry
}

// tellTime sets the clocks from an entry. Cluster time never goes back. While a jump of the wall clock beyond the
// limits above is not accepted, s.Wall advances with cluster time instead.
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

// WallAt returns the expected wall clock at a cluster time. For a time before s.Now, it returns s.Wall.
func (s *State) WallAt(now model.Time) int64 { return s.Wall + int64(max(now.Sub(s.Now), 0)) }

// doubted reports whether the wall clock of an entry agrees with the one in s.WallDoubt.
func (s *State) doubted(told int64) bool {
	d := s.WallDoubt
	return d.Since != 0 && apart(told, d.Wall+int64(s.Now.Sub(d.Since))) <= wallSlack
}

func apart(a, b int64) model.Duration { return model.Duration(max(a, b) - min(a, b)) }
