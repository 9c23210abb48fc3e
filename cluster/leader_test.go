package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// Every server's events show each leader with its term, once, including a leader that leadership was handed to.
func TestEventsNameEachLeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		told := func(s *rigServer) string {
			var lines []string
			for _, e := range s.machine.State().Events.All() {
				if e.Type == model.EventLeader {
					lines = append(lines, fmt.Sprintf("%s>%s %s term %s", e.Before, e.After, e.Data["server"], e.Data["term"]))
				}
			}
			return strings.Join(lines, "\n")
		}
		var want []string
		last := ""
		for range 3 {
			leader := r.leader(20 * time.Second)
			want = append(want, fmt.Sprintf("%s>%s %s term %d", last, leader.cfg.Name, leader.ID(), leader.Term()))
			last = leader.cfg.Name
			for _, s := range r.running() {
				eventually(t, 10*time.Second, "server "+s.host+" tells who leads", func() bool {
					return told(s) == strings.Join(want, "\n")
				})
			}
			if err := leader.TransferLeader(context.Background(), ""); err != nil {
				t.Fatal(err)
			}
			eventually(t, 10*time.Second, "the leadership to be handed over", func() bool { return leader.Term() == 0 })
		}
	})
}
