package httpapi

import (
	"sync"

	"github.com/outspan/outspan/model"
)

// streams limits how many streams of events and logs may be open. One caller may have at most a quarter of the limit,
// but always one. Safe for concurrent use.
type streams struct {
	most int

	mu   sync.Mutex
	open int
	of   map[model.Subject]int
}

func newStreams(most int) *streams { return &streams{most: most, of: map[model.Subject]int{}} }

// take counts a stream as open. The caller must call release once, when the stream has ended. take does not block.
// Code: busy.
func (s *streams) take(who model.Subject) (release func(), _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := max(s.most/4, 1)
	switch {
	case s.open >= s.most:
		return nil, model.Refuse(model.CodeBusy, "%d streams are open already", s.open).
			WithHint("ask another server, or close some")
	case s.of[who] >= own:
		return nil, model.Refuse(model.CodeBusy, "%s has %d streams open already, at most %d are allowed", who, s.of[who],
			own).WithHint("close some, or ask another server")
	}
	s.open++
	s.of[who]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.of[who]--; s.of[who] == 0 {
			delete(s.of, who)
		}
	}, nil
}
