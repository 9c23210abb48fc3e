package bubble

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// S4: all servers are killed in the middle of many writes, and start again from their disks. Everything that was
// acknowledged is in the state. Every write whose outcome is unknown is repeated with its request id, and is carried
// out only once. No program is disturbed.
func TestAllServersRestart(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		inBubble(t, options{}, func(t *testing.T, w *world) {
			web := w.run("web", group("http", 8, 64*mib))
			before, running := w.members(web), w.truth.running()
			var writes writers
			writes.start(w, 6, 20, random)
			time.Sleep(time.Duration(10+random.IntN(100)) * time.Millisecond)
			entry, now := w.state().Now, w.leader().cluster.Now()
			for _, s := range w.servers {
				s.kill()
			}
			acked := writes.acknowledged()
			time.Sleep(10 * time.Second)
			for _, s := range w.servers {
				<-s.done
			}
			again := time.Now()
			for _, s := range w.servers {
				s.restart()
			}
			w.leader()
			state := w.leader().state()
			for _, name := range acked {
				if !state.Jobs.Has(name) {
					t.Errorf("job %s was acknowledged before all servers were killed, and is not there", name)
				}
			}
			if is := w.leader().cluster.Now(); is < entry || is > now.Add(model.Duration(time.Since(again).Milliseconds())) {
				t.Errorf("cluster time is %d; it was %d, the last entry was at %d: time without servers must not count, "+
					"nor may it go back", is, now, entry)
			}
			writes.wait()
			once(t, w, writes.acknowledged(), 120)
			time.Sleep(30 * time.Second)
			t.Logf("%d of 120 writes were acknowledged before the kill", len(acked))
			same(t, w, web, before, running)
			if w.state().Hold.Active {
				t.Error("a hold is set")
			}
			for _, c := range commands[*fsm.NodeHealth](w.history) {
				if c.Health == model.HealthOffline {
					t.Errorf("node %s was marked offline: %s", c.ID, c.Reason)
				}
			}
		})
	})
}

// writers submit jobs without instances. Each writer submits its own jobs one after another, and repeats each one until
// it is acknowledged.
type writers struct {
	wg sync.WaitGroup

	mu    sync.Mutex
	acked []model.JobName
}

func (ws *writers) start(w *world, many, each int, random *rand.Rand) {
	for i := range many {
		pause := time.Duration(random.IntN(10)) * time.Millisecond
		ws.wg.Go(func() {
			for k := range each {
				time.Sleep(pause)
				name := fmt.Sprintf("job-%d-%d", i, k)
				if err := w.submit(name, group("none", 0, 64*mib)); err != nil {
					w.t.Errorf("%s: %v", name, err)
					continue
				}
				ws.mu.Lock()
				ws.acked = append(ws.acked, model.JobName(name))
				ws.mu.Unlock()
			}
		})
	}
}

func (ws *writers) acknowledged() []model.JobName {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Clone(ws.acked)
}

func (ws *writers) wait() { ws.wg.Wait() }

// once checks the number of acknowledged jobs, and that each of them was written to the state exactly once, even if its
// request was repeated.
func once(t *testing.T, w *world, names []model.JobName, want int) {
	t.Helper()
	if len(names) != want {
		t.Errorf("%d writes were acknowledged, want %d", len(names), want)
	}
	state := w.state()
	for _, name := range names {
		job, ok := state.Jobs.Get(name)
		if !ok || job.Version != 1 {
			t.Errorf("job %s: there %v, %+v", name, ok, job)
		}
	}
}

// S5, S4: one server after the other is stopped and started again while jobs are submitted. Each server catches up, and
// in the end all servers agree.
func TestRollingRestart(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, w *world) {
		web := w.run("web", group("http", 8, 64*mib))
		before, running := w.members(web), w.truth.running()
		var writes writers
		writes.start(w, 2, 20, rand.New(rand.NewPCG(1, 1)))
		for _, s := range w.servers {
			s.stop()
			time.Sleep(3 * time.Second)
			s.restart()
			w.leader()
			w.eventually(10*time.Second, s.name+" has caught up", func() bool {
				return s.cluster.CaughtUp() && s.state().Index == w.state().Index
			})
		}
		writes.wait()
		once(t, w, writes.acknowledged(), 40)
		w.agree()
		same(t, w, web, before, running)
	})
}

// S10: an entry that a leader decided in an earlier term is refused with stale_term and changes nothing, even if the
// same server leads again.
func TestDeposedLeadersEntryIsRefused(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, w *world) {
		web := w.run("web", group("http", 4, 64*mib))
		first := w.leader()
		term := first.cluster.Term()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, first.cluster.TransferLeader(ctx, ""))
		w.eventually(10*time.Second, "another leads", func() bool { l := w.leads(); return l != nil && l != first })
		must(t, w.leader().cluster.TransferLeader(ctx, first.cluster.ID()))
		w.eventually(10*time.Second, "the first leads again", func() bool { return w.leads() == first })

		var victim model.InstanceID
		for id := range w.members(web) {
			victim = id
		}
		decision := fsm.Entry{Term: term, Actor: model.ActorLeader,
			Groups: [][]fsm.Command{{&fsm.InstanceStop{ID: victim, Cause: model.CauseUser, By: "an old leader", Bypass: true}}}}
		results, err := first.cluster.Propose(ctx, decision)
		must(t, err)
		if refusal := results[0].Refusal; refusal == nil || refusal.Code != model.CodeStaleTerm {
			t.Errorf("an entry of term %d in term %d: %v, want stale_term", term, first.cluster.Term(), refusal)
		}
		w.agree()
		for _, s := range w.servers {
			if i, ok := s.state().Instances.Get(victim); !ok || i.Desired != model.DesiredRunning {
				t.Errorf("%s: the refused entry had an effect", s.name)
			}
		}
	})
}

// S4, S10: a leader that is cut off from the other servers can't commit. Its decisions have no effect, and it does not
// report them as committed. Another server leads in a higher term, and the old leader follows it when the network works
// again. Agents that used the old leader change to other servers.
func TestCutOffLeaderCommitsNothing(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, w *world) {
		w.lead(w.servers[0]) // each agent prefers the first server, so all of them use the leader
		w.run("web", group("http", 4, 64*mib))
		old := w.leader()
		term := old.cluster.Term()
		for _, s := range w.servers {
			if s != old {
				w.net.Drop(old.host, s.host)
				w.net.Drop(s.host, old.host)
			}
		}
		lost := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, err := old.cluster.Propose(ctx,
				fsm.Entry{Term: term, Actor: model.ActorLeader,
					Groups: [][]fsm.Command{{&fsm.HoldSet{Active: true, Reason: "nobody hears this"}}}})
			lost <- err
		}()
		w.eventually(10*time.Second, "another leads", func() bool { l := w.leads(); return l != nil && l != old })
		must(t, w.submit("next", group("http", 2, 64*mib)))
		w.ready("next/http", 2, 2*time.Minute)
		if err := <-lost; err == nil {
			t.Error("the leader that was cut off says that its entry was committed")
		} else {
			t.Logf("the entry's outcome: %v", err)
		}
		w.net.Heal()
		w.agree()
		if n := len(commands[*fsm.HoldSet](w.history)); n != 0 || w.state().Hold.Active {
			t.Errorf("%d holds were set by a leader that was cut off", n)
		}
		if l := w.leader(); l.cluster.Term() <= term {
			t.Errorf("term %d, was %d", l.cluster.Term(), term)
		}
	})
}
