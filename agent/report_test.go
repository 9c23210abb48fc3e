package agent

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// busyNode is the reporter of a node whose instances change faster than its reports can carry the changes.
type busyNode struct {
	*reporter
	rounds   int
	statuses []model.InstanceStatus
	last     map[model.InstanceID]int // the round in which an instance was last reported
	sent     transport.ReportRequest
}

const busyInstances = 200

func newBusyNode(t *testing.T) *busyNode {
	b := &busyNode{last: map[model.InstanceID]int{}}
	b.reporter = newReporter("n", func(_ context.Context, q transport.ReportRequest) (transport.ReportReply, error) {
		b.sent = q
		return transport.ReportReply{}, nil
	}, testLog(t))
	now := registration{1, 7}
	b.newRegistration(now)
	for i := range busyInstances {
		b.statuses = append(b.statuses, model.InstanceStatus{
			ID: model.InstanceID(fmt.Sprintf("i%05d", i)), Generation: 1, Observed: model.ObservedReady,
		})
		b.set(b.statuses[i])
	}
	b.begin(now, 0)
	_, err := b.flush(t.Context(), hclog.Warn)
	must(t, err)
	return b
}

// alter changes the status of instance number i and gives it to the reporter.
func (b *busyNode) alter(i int, change func(*model.InstanceStatus)) {
	s := &b.statuses[i]
	s.Generation++
	change(s)
	b.set(*s)
}

// say gives an instance facts of the largest size, which differ in each round.
func (b *busyNode) say(s *model.InstanceStatus) {
	s.Facts = facts{}
	for i := range maxFacts {
		s.Facts[fmt.Sprintf("fact_%02d_%s", i, strings.Repeat("x", 40))] = fmt.Sprintf("%064d", b.rounds)
	}
}

// report waits half a second, sends one report, and records which instances the report has.
func (b *busyNode) report(t *testing.T) {
	t.Helper()
	time.Sleep(time.Second / 2)
	_, err := b.flush(t.Context(), hclog.Warn)
	must(t, err)
	b.rounds++
	for _, s := range b.sent.Instances {
		b.last[s.ID] = b.rounds
	}
}

// told returns the state that the last report gives for an instance, or "" if the report does not have the instance.
func (b *busyNode) told(id model.InstanceID) model.Observed {
	for _, s := range b.sent.Instances {
		if s.ID == id {
			return s.Observed
		}
	}
	return ""
}

// Facts that change faster than they can be reported do not delay the report of a failure. Each instance is in at least
// one of any four reports in a row.
func TestReportsOfChattyInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusyNode(t)
		last := b.statuses[busyInstances-1].ID
		for round := range 40 {
			for i := range b.statuses {
				b.alter(i, b.say)
			}
			if round == 20 {
				b.alter(busyInstances-1, func(s *model.InstanceStatus) { s.Observed = model.ObservedFailed })
			}
			b.report(t)
			if got := b.told(last); round == 20 && got != model.ObservedFailed {
				t.Errorf("the report after the failure of %s says %q of it", last, got)
			}
			for _, s := range b.statuses {
				if since := b.rounds - b.last[s.ID]; since > 3 {
					t.Fatalf("round %d: %s was told %d reports ago", round, s.ID, since)
				}
			}
		}
	})
}

// While the states of other instances change all the time, a failure is reported within four reports, and a change of
// facts within sixteen.
func TestReportsOfFlappingInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusyNode(t)
		for i := range b.statuses {
			b.alter(i, b.say)
		}
		const quiet, fails = busyInstances - 1, busyInstances - 2
		for round := range 40 {
			for i := range quiet - 1 {
				b.alter(i, func(s *model.InstanceStatus) {
					s.Observed = map[bool]model.Observed{true: model.ObservedReady, false: model.ObservedUnready}[round%2 == 0]
				})
			}
			switch round {
			case 20:
				b.alter(quiet, b.say)
				b.alter(fails, func(s *model.InstanceStatus) { s.Observed = model.ObservedFailed })
			case 24:
				if b.last[b.statuses[fails].ID] <= 20 {
					t.Error("the failure is not told after four reports")
				}
			case 36:
				if b.last[b.statuses[quiet].ID] <= 20 {
					t.Error("facts are not told after sixteen reports")
				}
			}
			b.report(t)
		}
	})
}

// The first changes of facts are reported at once. Facts that keep changing are then reported once a second, and the
// last report has the newest facts.
func TestFactsAreToldSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		ask := func(context.Context) (facts, error) {
			return facts{"index": fmt.Sprint(min(asked.Add(1), 200))}, nil
		}
		w := watchRole(t.Context(), &model.RoleCheckSpec{Interval: 100 * model.Millisecond}, ask, hclog.NewNullLogger())
		defer w.stop()
		time.Sleep(350 * time.Millisecond)
		if f, ok := takeFacts(w); !ok || f["index"] != fmt.Sprint(asked.Load()) {
			t.Errorf("after %d answers the facts are %v: the first changes are told at once", asked.Load(), f)
		}
		told, newest := 0, facts(nil)
		for range 3000 {
			time.Sleep(10 * time.Millisecond)
			if f, ok := takeFacts(w); ok {
				told++
				newest = f
			}
		}
		if asked.Load() < 250 || told > 20+factsBurst || told < 20 {
			t.Errorf("of %d answers, with 200 changes in 20 seconds, %d were told", asked.Load(), told)
		}
		if newest["index"] != "200" {
			t.Errorf("the last that was told: %v", newest)
		}
	})
}

// When an agent stops, drain waits until the reports of transfers have been sent.
func TestDrainSendsTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusyNode(t)
		b.setTransfer(model.TransferReport{ID: "t1", State: model.SideFailed})
		drained := false
		go func() {
			b.drain(t.Context())
			drained = true
		}()
		if synctest.Wait(); drained {
			t.Error("drain returned before the report of the transfer was sent")
		}
		_, err := b.flush(t.Context(), hclog.Warn)
		must(t, err)
		if synctest.Wait(); !drained || len(b.sent.Transfers) != 1 {
			t.Errorf("after the report of %d transfers drain has returned: %v", len(b.sent.Transfers), drained)
		}
	})
}
