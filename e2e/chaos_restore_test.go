package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// restoreSnapshot saves a snapshot, calls the given function, and restores the snapshot. The workload writes nothing
// meanwhile, so the restore must undo none of its acknowledged writes. If the function moves instances, they don't run
// where the restored state has them, and requests of users may fail. A member that is revoked and tokens that end after
// the snapshot was saved must not come back.
func (s *strike) restoreSnapshot(change func()) {
	x := s.x
	s.hit(x.c.servers...)
	x.work.gate.Lock()
	defer x.work.gate.Unlock()
	must := func(err error) {
		if err != nil {
			x.book.violate("S5: the history around a restore: %v", err)
		}
	}
	if x.random.IntN(3) > 0 { // otherwise instances of web may be moving when the snapshot is saved
		_ = within(10*time.Second, func() error { return x.story.calm(probedGroup) })
	}
	file := x.c.path("chaos.snap")
	kept, err := x.story.remember(x.c.leader(x.t))
	must(err)
	forget := x.endTrustLater()
	x.c.must(x.t, "server", "snapshot", "save", file, "--force")
	x.person(http.MethodPost, "/v1/nodes/n1/label", `{"labels":{"one":"lost"}}`)
	change()
	comeBack := forget()
	moved, err := x.story.movedSince(kept, probedGroup, x.c.leader(x.t))
	must(err)
	if moved > 0 {
		s.say("%d instances of web were on the move", moved)
		s.hit(x.c.agents...)
	}
	x.c.must(x.t, "server", "snapshot", "restore", file, "--yes")
	x.work.checkMarks()
	comeBack()
	x.c.must(x.t, "settings", "resume", "restore")
	must(x.story.rewind(kept, x.c.leader(x.t)))
	x.book.count("snapshots restored", 1)
	s.later(x.decideKept)
}

// moveMuch evicts instances of several jobs, restarts an agent, and waits until all jobs have their instances again.
// This makes an earlier snapshot outdated.
func (s *strike) moveMuch() {
	x := s.x
	s.hit(x.c.agents...)
	if err := within(30*time.Second, x.asWanted); err != nil { // evict even if the cluster has not settled
		s.say("not settled before: %.200v", err)
	}
	running := x.kernel.onNode("")
	x.random.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
	evicted := map[string]bool{}
	for _, a := range running {
		if len(evicted) < 4 && !evicted[a.job] {
			evicted[a.job] = true
			x.person(http.MethodPost, "/v1/instances/"+a.id+"/evict", "{}")
			s.say("%s of %s evicted", a.id, a.job)
		}
	}
	m := x.c.agents[x.random.IntN(len(x.c.agents))]
	m.Kill()
	m.start(x.t)
	s.say("%s restarted", m.Name)
	if err := within(45*time.Second, x.asWanted); err != nil {
		s.say("not settled since: %.200v", err)
	}
	x.book.count("instances evicted before a restore", len(evicted))
}

// decideKept decides in place of a person about the instances that the restored state does not contain, but that hold
// their slots. It stops them.
func (x *chaos) decideKept() {
	_ = within(20*time.Second, func() error {
		var list struct {
			Items []struct {
				Instance string
				Kept     bool
			}
		}
		if err := x.get("/v1/unknown-instances", &list); err != nil {
			return err
		}
		kept := slices.DeleteFunc(list.Items, func(i struct {
			Instance string
			Kept     bool
		}) bool {
			return !i.Kept
		})
		for _, i := range kept {
			x.person(http.MethodPost, "/v1/instances/"+i.Instance+"/stop", "{}")
			x.book.count("instances kept after a restore and stopped by a person", 1)
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%+v", list.Items)
		}
		return nil
	})
}
