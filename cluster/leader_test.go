package cluster

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// Every server has one event for each leader, with the leader's term, even if leadership was handed over.
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

// After the restore of a snapshot from the term of an earlier leader, the state and its events name the current leader.
func TestRestoreTellsWhoLeads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		leads := func(s *rigServer) bool {
			now := s.machine.State().Leader
			return now.Server == s.ID() && now.Term == s.Term()
		}
		first := r.leader(20 * time.Second)
		eventually(t, 10*time.Second, "the first leader to be told", func() bool { return leads(first) })
		var saved bytes.Buffer
		if err := first.Save(context.Background(), &saved); err != nil {
			t.Fatal(err)
		}
		if err := first.TransferLeader(context.Background(), ""); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "the leadership to be handed over", func() bool { return first.Term() == 0 })
		second := r.leader(20 * time.Second)
		eventually(t, 10*time.Second, "the second leader to be told", func() bool { return leads(second) })
		if err := second.Restore(context.Background(), bytes.NewReader(saved.Bytes())); err != nil {
			t.Fatal(err)
		}
		r.agree(30 * time.Second)
		for _, s := range r.running() {
			var last string
			for _, e := range s.machine.State().Events.All() {
				if e.Type == model.EventLeader {
					last = fmt.Sprintf("%s>%s %s", e.Before, e.After, e.Data["server"])
				}
			}
			want := fmt.Sprintf("%s>%s %s", first.cfg.Name, second.cfg.Name, second.ID())
			if got := s.machine.State().Leader; last != want || got.Server != second.ID() || got.Term != second.Term() {
				t.Errorf("%s: the last event says %q, want %q; the state says %+v", s.host, last, want, got)
			}
		}
	})
}
