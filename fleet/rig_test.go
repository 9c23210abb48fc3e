package fleet

import (
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/rights"
)

func seesAll(*fsm.State) (Sight, error) { return Sight{}, nil }

// newTestPublisher returns a Publisher of a Machine, on a server that is the leader.
func newTestPublisher(m *fsm.Machine) *Publisher {
	return New(Config{Server: "s1", Build: "1.2.3", Changes: m.Changes, Leader: func() string { return "s1" },
		Age:      func() time.Duration { return 0 },
		Problems: func() map[api.ProblemCode]int { return map[api.ProblemCode]int{api.ProblemPaused: 1} }})
}

// halt ends the ticks of a Publisher that has a reader, so that the test makes them.
func halt(p *Publisher) {
	p.running.cancel()
	p.running.ended()
}

func anyRole() rights.Role {
	return rights.Role{Name: "any", Allow: []rights.Grant{{Verbs: []rights.VerbPattern{"node.read"}}}}
}

func leaveAll(p *Publisher, readers []*conn) {
	for _, c := range readers {
		p.leave(c)
	}
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}
