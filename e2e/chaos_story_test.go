package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// toldInstance is the state of an instance as the events show it.
type toldInstance struct {
	group, slot, node, replaces string
	desired, observed           string
}

func (i *toldInstance) wanted() bool { return i.desired == "running" && i.observed != "lost" }
func (i *toldInstance) ready() bool  { return i.desired == "running" && i.observed == "ready" }

// over reports whether the instance can't change any more. A failed instance can: its agent may restart it as long as
// the agent does not know that the instance is replaced.
func (i *toldInstance) over() bool { return i.desired == "stopped" && i.observed == "stopped" }

// steady reports whether the instance neither starts nor stops.
func (i *toldInstance) steady() bool {
	return i.ready() || i.desired == "stopped" && i.observed == "failed"
}

// story follows the cluster's events, which are the same at every server, and judges each of them. It checks
// replacements, the budget at each voluntary stop, changes of states, and nodes that are marked offline.
type story struct {
	x    *chaos
	quit chan struct{}
	done sync.WaitGroup

	mu        sync.Mutex
	last      string
	index     uint64
	instances map[string]*toldInstance
	ended     map[string]string // final state of each instance that can't change any more
	held      bool              // true while a restore replaces the state; read then does nothing
	counted   uint64            // highest index of events already counted; after a restore, some indexes occur again
	hold      bool
	requests  map[string]int // number of events of the job ledger, by request id
	offline   []eventView    // events of nodes that were marked offline in this window
	windows   *window
}

func newStory(x *chaos) *story {
	s := &story{x: x, quit: make(chan struct{}), requests: map[string]int{}, last: "0"}
	s.instances, s.ended = map[string]*toldInstance{}, map[string]string{}
	s.done.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-s.quit:
				return
			case <-time.After(250 * time.Millisecond):
				_ = s.read(x.c.servers[n%len(x.c.servers)]) // after an error, another server has the same events
			}
		}
	})
	return s
}

// count adds n to one of the book's counts, unless the event that was read last was already counted before a restore.
func (s *story) count(what string, n int) {
	if s.index > s.counted {
		s.x.book.count(what, n)
	}
}

func (s *story) enter(w *window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows, s.offline = w, nil
}

// read judges the events that a server has after the event that was read last.
func (s *story) read(from *member) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		return nil
	}
	a, err := from.ask(http.MethodGet, "/v1/events?follow=false&after="+s.last, "", 4*time.Second)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("%d %s", a.status, a.body)
	}
	for line := range strings.Lines(string(a.body)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var e toldEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return fmt.Errorf("%w in %s", err, line)
		}
		if e.Index < s.index {
			s.x.book.violate("S8: event %s came behind one of index %d", e.ID, s.index)
		}
		s.last, s.index = e.ID, e.Index
		s.count("events judged", 1)
		s.take(e)
	}
	return nil
}

// toldEvent is an event with the id of the request that led to it.
type toldEvent struct {
	eventView
	Request string `json:"request_id"`
}

func (s *story) take(e toldEvent) {
	subject, id, _ := strings.Cut(e.Subject, "/")
	switch e.Type {
	case "instance.allocated":
		s.allocated(e, id)
	case "instance.desired_state_changed":
		s.desired(e, id)
	case "instance.status_changed":
		s.status(e, id)
	case "hold.changed":
		s.hold = e.Data["after"] == "true"
		s.count("holds", one(s.hold))
	case "node.state_changed":
		if e.Data["after"] == "offline" {
			s.wentOffline(e)
		}
	case "leader.changed":
		s.count("terms begun", 1)
	case "drain.phase_changed":
		s.count("drains "+e.Data["after"], one(e.Data["node"] == "" || e.Data["after"] != "draining"))
	case "job.changed":
		if subject == "job" && id == ledgerJob && e.Request != "" {
			s.requests[e.Request]++
		}
	}
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// allocated checks S7 (one replacement at a time), S9 (no id is used again) and S12 (during a hold, nothing on an
// offline node is replaced).
func (s *story) allocated(e toldEvent, id string) {
	if s.instances[id] != nil || s.ended[id] != "" {
		s.x.book.violate("S9: instance %s is allocated again by %s", id, e.ID)
	}
	i := &toldInstance{group: e.Data["group"], slot: e.Data["slot"], node: e.Data["node"], replaces: e.Data["replaces"],
		desired: "running", observed: "pending"}
	for other, o := range s.instances {
		if i.replaces != "" && o.replaces == i.replaces && o.wanted() && o.observed != "failed" && other != id {
			s.x.book.violate("S7: instance %s has two replacements, %s and %s (%s)", i.replaces, other, id, e.ID)
		}
	}
	if s.hold && e.Cause == "node_offline" {
		s.x.book.violate("S12: instance %s replaces one of an offline node while there is a hold (%s)", id, e.ID)
	}
	s.instances[id] = i
	wanted := 0
	for _, o := range s.instances {
		wanted += one(o.group == i.group && o.slot == i.slot && o.wanted() && o.observed != "failed")
	}
	if wanted > 2 {
		s.x.book.violate("S7: slot %s of %s has %d instances that are wanted (%s)", i.slot, i.group, wanted, e.ID)
	}
}

// budgeted lists the causes of stops that a budget limits.
var budgeted = []string{"node_draining", "user_requested", "preempted", "rebalance", "affinity",
	"role_replacement", "rollout"}

// desired checks S8 for each change of an instance's desired state, and S3 for each voluntary stop of a ready instance.
func (s *story) desired(e toldEvent, id string) {
	if how := s.ended[id]; how != "" {
		s.x.book.violate("S8: instance %s had ended as %s and goes to %s (%s)", id, how, e.Data["after"], e.ID)
	}
	i := s.instances[id]
	if i == nil || e.Data["before"] == "waiting" || e.Data["after"] == "restarting" {
		return
	}
	if i.desired == "stopped" || i.desired == "draining" && e.Data["after"] == "running" {
		s.x.book.violate("S8: instance %s goes from %s to %s (%s)", id, i.desired, e.Data["after"], e.ID)
	}
	ready := 0
	for _, o := range s.instances {
		ready += one(o.group == i.group && o.ready())
	}
	least := minReady[i.group]
	if i.ready() && slices.Contains(budgeted, e.Cause) && ready-1 < least &&
		!strings.HasPrefix(e.Data["reason"], "budget bypassed") {
		s.x.book.violate("S3: %s is stopped for %s with %d ready of %s, which needs %d (%s %v)", id, e.Cause, ready,
			i.group, least, e.ID, e.Data)
	}
	if i.ready() && slices.Contains(budgeted, e.Cause) {
		s.count("voluntary stops", 1)
	}
	i.desired = e.Data["after"]
	s.settle(id, i)
}

// settle moves an instance that can't change any more to s.ended.
func (s *story) settle(id string, i *toldInstance) {
	if i.over() {
		s.ended[id] = i.observed
		delete(s.instances, id)
	}
}

// status checks S8 and S9: an instance in s.ended must not change.
func (s *story) status(e toldEvent, id string) {
	if how := s.ended[id]; how != "" {
		s.x.book.violate("S9: instance %s had ended as %s and is %s (%s)", id, how, e.Data["after"], e.ID)
	}
	if i := s.instances[id]; i != nil {
		i.observed = e.Data["after"]
		s.settle(id, i)
	}
}

// wentOffline checks S12: no node is marked offline during a hold. It also checks S13: if the window's faults touch
// only a minority of the servers, only nodes that these faults touch are marked offline.
func (s *story) wentOffline(e toldEvent) {
	s.offline = append(s.offline, e.eventView)
	s.count("nodes marked offline", 1)
	if s.hold {
		s.x.book.violate("S12: node %s is marked offline while there is a hold (%s)", e.Data["name"], e.ID)
	}
	w, m := s.windows, s.x.c.member(e.Data["name"])
	if w == nil || m == nil || w.touches(m) || w.well(s.x) <= chaosServers/2 {
		return
	}
	if gap := s.x.kernel.starved(); gap > time.Second {
		s.x.book.say("%s was marked offline while this machine stood still for %s: not judged", m.Name, gap)
		return
	}
	s.x.book.violate("S13: %s is marked offline in window %d (%s), which does not touch it (%s)",
		m.Name, w.number, w.name, e.ID)
}

// offlineAt returns when a node was marked offline in this window. It returns false if the node was not marked offline.
func (s *story) offlineAt(m *member) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.offline {
		if e.Data["name"] == m.Name {
			return e.Time, true
		}
	}
	return time.Time{}, false
}

// catchUp reads the leader's events until there are no more. If there are still more after 20 reads, it returns an
// error.
func (s *story) catchUp(leader *member) error {
	for range 20 {
		s.mu.Lock()
		before := s.last
		s.mu.Unlock()
		if err := s.read(leader); err != nil {
			return err
		}
		s.mu.Lock()
		same := s.last == before
		s.mu.Unlock()
		if same {
			return nil
		}
	}
	return errors.New("there is always more to read")
}

// holds returns how many events of the job ledger a request has caused.
func (s *story) holds(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[request]
}

// memory is a copy of what a story knows at some moment.
type memory struct {
	last      string
	index     uint64
	instances map[string]*toldInstance
	ended     map[string]string
	requests  map[string]int
	hold      bool
}

// remember reads all events so far and returns what the story knows. A snapshot that is saved afterwards contains all
// these events.
func (s *story) remember(from *member) (memory, error) {
	if err := s.catchUp(from); err != nil {
		return memory{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := memory{last: s.last, index: s.index, ended: maps.Clone(s.ended), requests: maps.Clone(s.requests), hold: s.hold,
		instances: map[string]*toldInstance{}}
	for id, i := range s.instances {
		kept := *i
		m.instances[id] = &kept
	}
	return m, nil
}

// calm returns nil if all instances of a group are steady.
func (s *story) calm(group string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, i := range s.instances {
		if i.group == group && !i.steady() {
			return fmt.Errorf("instance %s is %s and to be %s", id, i.observed, i.desired)
		}
	}
	return nil
}

// movedSince counts the instances of a group that were not steady in m, or have changed since. Afterwards the story
// reads no events until rewind is called.
func (s *story) movedSince(m memory, group string, from *member) (int, error) {
	if err := s.catchUp(from); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := 0
	for id, i := range m.instances {
		now := s.instances[id]
		moved += one(i.group == group && (!i.steady() || now == nil || *now != *i))
	}
	s.held = true
	return moved, nil
}

// rewind sets the story back to m after a restore, and reads the events that follow in the restored state. It does not
// read all events again, because the cluster may have dropped the oldest ones.
func (s *story) rewind(m memory, from *member) error {
	s.mu.Lock()
	s.held, s.counted = false, max(s.counted, s.index)
	s.last, s.index, s.instances, s.ended, s.requests, s.hold = m.last, m.index, m.instances, m.ended, m.requests, m.hold
	s.mu.Unlock()
	return s.catchUp(from)
}
