package httpapi_test

import (
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// assignmentsAfter starts a long poll of node 01N2 in the background, and returns once a server has received the poll.
func (r *rig) assignmentsAfter(t testing.TB, c *transport.Client, index uint64) <-chan transport.Assignments {
	t.Helper()
	before := r.signs("01N2")
	defer func() { eventually(t, "the poll begins", func() bool { return r.signs("01N2") > before }) }()
	done := make(chan transport.Assignments, 1)
	ctx := t.Context()
	go func() {
		got, err := c.Assignments(ctx,
			transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2"), Index: index, Wait: 30 * model.Second})
		if err != nil {
			t.Errorf("assignments: %v", err)
		}
		done <- got
	}()
	return done
}

// signs returns how many signs of life of a node the servers have received.
func (r *rig) signs(id model.NodeID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard[id]
}

func TestAssignments(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.client(pki.RoleAgent, "n2")
	first := must(c.Assignments(t.Context(),
		transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2"), Wait: 30 * model.Second}))(t)
	if len(first.Instances) != 0 || first.Index == 0 || first.Register {
		t.Fatalf("first assignments: %+v", first)
	}
	done := r.assignmentsAfter(t, c, first.Index)
	r.apply(&fsm.NodeIntent{ID: "01N1", Intent: model.IntentCordoned}) // not about n2
	select {
	case got := <-done:
		t.Fatalf("woken for nothing: %+v", got)
	default:
	}
	r.place("inst-c", 2, "01N2", model.ObservedPending)
	got := <-done
	if len(got.Instances) != 1 || got.Index <= first.Index {
		t.Fatalf("after a placement: %+v", got)
	}
	one := got.Instances[0]
	if one.ID != "inst-c" || one.Desired != model.DesiredRunning || one.Ports["http"] != 20002 || one.Memory != 64<<20 ||
		one.Job != "web" || one.Spec == nil || one.Spec.Exec.Command != "/bin/web" {
		t.Errorf("assignment: %+v", one)
	}
	done = r.assignmentsAfter(t, c, got.Index)
	r.apply(&fsm.InstanceStop{ID: "inst-c", Cause: model.CauseUser})
	if got = <-done; len(got.Instances) != 1 || got.Instances[0].Desired != model.DesiredStopped ||
		got.Instances[0].Spec != nil {
		t.Errorf("after a stop: %+v, want no spec, which was told before", got.Instances)
	}
	done = r.assignmentsAfter(t, c, got.Index)
	r.apply(&fsm.RestoreMark{})
	if got = <-done; !got.Unconfirmed || got.Incarnation != 1 || got.Instances[0].Spec == nil {
		t.Errorf("after a restore: %+v, want also every spec: what was told before says nothing", got)
	}
	if got.Confirmed != 0 {
		t.Errorf("a restore was confirmed %s ago, by nobody", got.Confirmed)
	}
	r.apply(&fsm.RestoreMark{Confirm: true},
		&fsm.NodeReport{ID: "01N2", Epoch: r.epoch("01N2"), Full: true, Incarnation: got.Incarnation})
	ask := func() transport.Assignments {
		return must(c.Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2")}))(t)
	}
	at := ask().Confirmed
	time.Sleep(30 * time.Millisecond)
	if got = ask(); at == 0 || got.Confirmed != at || got.Unconfirmed {
		t.Errorf("confirmed %s ago, and without an entry since %s (S2: a server's own clock may be ahead)", at, got.Confirmed)
	}
	r.apply(&fsm.NodeIntent{ID: "01N1", Intent: model.IntentActive})
	if later := ask().Confirmed; later < 30 {
		t.Errorf("confirmed %s ago, and 30 ms and an entry later %s", at, later)
	}
}

// If the restored state lacks a node, the node's agent registers again. The agent stops nothing before it has reported
// what it runs.
func TestAssignmentsOfANodeThatARestoreLost(t *testing.T) {
	r := newRig(t)
	r.world()
	r.apply(&fsm.RestoreMark{}, &fsm.RestoreMark{Confirm: true})
	r.node("01N9", "n9") // its agent has seen only incarnation 0
	ask := func() transport.Assignments {
		return must(r.client(pki.RoleAgent, "n9").
			Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N9", Epoch: r.epoch("01N9")}))(t)
	}
	first := ask()
	if !first.Unconfirmed {
		t.Errorf("before its inventory: %+v", first)
	}
	r.apply(&fsm.NodeReport{ID: "01N9", Epoch: r.epoch("01N9"), Full: true, Incarnation: first.Incarnation})
	if then := ask(); then.Unconfirmed || then.Index <= first.Index {
		t.Errorf("after its inventory: %+v, before it: %+v", then, first)
	}
}

// A server that lags refuses agents, because its answers might be outdated.
func TestAssignmentsOfALaggingServer(t *testing.T) {
	r := newRig(t)
	r.world()
	r.mu.Lock()
	r.servers["s1"].fresh = false
	r.mu.Unlock()
	_, err := r.client(pki.RoleAgent, "n2").
		Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2")})
	wantCode(t, err, model.CodeNotCaughtUp)
	_, p := raw(t, r, pki.RoleCLI, "alice", "GET", "/readyz", "", "")
	if p == nil || p.Code != model.CodeNotCaughtUp {
		t.Errorf("readyz: %+v", p)
	}
}

// A server that is cut off from the others, or has no room for new entries, sends agents to another server. Agents with
// a pending poll are sent away too, because later decisions may concern them.
func TestAssignmentsOfACutOffServer(t *testing.T) {
	t.Run("stale", func(t *testing.T) { sendsAgentsElsewhere(t, func(s *server) { s.stale = 11 * time.Second }) })
	t.Run("disk full", func(t *testing.T) { sendsAgentsElsewhere(t, func(s *server) { s.full = true }) })
}

func sendsAgentsElsewhere(t *testing.T, ail func(*server)) {
	t.Helper()
	r := newRig(t)
	r.world()
	c := r.client(pki.RoleAgent, "n2")
	first := must(c.Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2")}))(t)
	held := make(chan error, 3)
	ctx := t.Context()
	go func() {
		_, err := c.Assignments(ctx,
			transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2"), Index: first.Index, Wait: 30 * model.Second})
		held <- err
	}()
	go func() {
		_, err := c.Services(ctx,
			transport.ServicesRequest{Node: "01N2", Index: r.machine.State().Index, Wait: 30 * model.Second})
		held <- err
	}()
	go func() {
		_, err := c.Peers(ctx,
			transport.PeersRequest{Node: "01N2", Groups: []transport.PeersKnown{{Group: "web/http", At: 1 << 40}},
				Incarnation: 1, Wait: 30 * model.Second})
		held <- err
	}()
	r.mu.Lock()
	ail(r.servers["s1"])
	r.mu.Unlock()
	for range 3 {
		wantCode(t, <-held, model.CodeNotCaughtUp)
	}
	_, err := c.Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2")})
	wantCode(t, err, model.CodeNotCaughtUp)
}
