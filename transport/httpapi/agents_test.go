package httpapi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// An agent registers, sends its inventory, and asks for its assignments. A report with an older epoch is refused. A
// poll with an older epoch, or of an unknown node, is answered with Register.
func TestAgentProtocol(t *testing.T) {
	r := newRig(t)
	c := r.client(pki.RoleAgent, "n1")
	ask := transport.RegisterRequest{
		Node: "01N1", Name: "n1", Agent: model.AgentInfo{BootID: "b1", Incarnation: "i1", Address: "127.0.0.1",
			Key: []byte("chosen by the agent"), Epoch: 99},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 20000, PortMax: 20100},
	}
	reply := must(c.Register(t.Context(), ask))(t)
	if reply.Epoch != r.epoch("01N1") || len(reply.Key) != 32 || reply.Heartbeat != 10*model.Second ||
		reply.Cluster != "01CLUSTER" || len(reply.Servers) != 1 || reply.Servers[0].APIAddress != r.servers["s1"].address {
		t.Errorf("registration: %+v", reply)
	}
	again := must(c.Register(t.Context(), ask))(t)
	if again.Epoch <= reply.Epoch || string(again.Key) == string(reply.Key) {
		t.Errorf("second registration: epoch %d, key changed %v", again.Epoch, string(again.Key) != string(reply.Key))
	}
	_, err := c.Report(t.Context(), transport.ReportRequest{Node: "01N1", Epoch: reply.Epoch, Full: true})
	wantCode(t, err, model.CodeStale)
	report := must(c.Report(t.Context(), transport.ReportRequest{Node: "01N1", Epoch: again.Epoch, Full: true}))(t)
	if s := r.machine.State(); report.Index != s.Index {
		t.Errorf("report at %d, state at %d", report.Index, s.Index)
	}
	if got := must(c.Assignments(t.Context(),
		transport.AssignmentsRequest{Node: "01N1", Epoch: reply.Epoch}))(t); !got.Register {
		t.Error("an older epoch was served")
	}
	if got := must(c.Assignments(t.Context(),
		transport.AssignmentsRequest{Node: "01NEW", Epoch: r.epoch("01NEW")}))(t); !got.Register {
		t.Error("an unknown node was not told to register")
	}
	if heard := r.signs("01N1"); heard < 3 {
		t.Errorf("%d signs of life were noted, want one for each good request", heard)
	}
}

// A call that the leader's state would refuse makes no log entry, however often an agent repeats the call.
func TestRefusedAgentsWriteNothing(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.client(pki.RoleAgent, "n2")
	agent := model.AgentInfo{BootID: "b1", Address: "127.0.0.1"}
	before := r.machine.State().Index
	for range 20 {
		_, err := c.Register(t.Context(), transport.RegisterRequest{Node: "01OTHER", Name: "n2", Agent: agent})
		wantCode(t, err, model.CodeNameTaken)
		_, err = c.Register(t.Context(),
			transport.RegisterRequest{Node: "01N2", Name: "n2", Agent: model.AgentInfo{Address: "127.0.0.1"}})
		wantCode(t, err, model.CodeInvalid)
		_, err = c.Register(t.Context(), transport.RegisterRequest{Node: "01N1", Name: "n2", Agent: agent})
		wantCode(t, err, model.CodeNodeTaken)
		_, err = c.Register(t.Context(),
			transport.RegisterRequest{Node: "01N2", Name: "n2", Agent: agent, Cluster: "01ANOTHER"})
		wantCode(t, err, model.CodeConflict)
		_, err = c.Report(t.Context(), transport.ReportRequest{Node: "01N2", Epoch: 77, Full: true})
		wantCode(t, err, model.CodeStale)
	}
	if after := r.machine.State().Index; after != before {
		t.Errorf("%d entries were written", after-before)
	}
	if reply := must(c.Register(t.Context(),
		transport.RegisterRequest{Node: "01N2", Name: "n2", Agent: agent}))(t); reply.Epoch != before+1 {
		t.Errorf("a good one after them: epoch %d", reply.Epoch)
	}
}

// A node may register with servers of the lineage that it follows, or of a lineage that replaced this one. Other
// servers refuse the node.
func TestNodeOfAnotherLineage(t *testing.T) {
	r := newRig(t)
	r.world()
	r.apply(&fsm.RestoreMark{Lineages: "l1,l2"})
	c := r.client(pki.RoleAgent, "n9")
	ask := transport.RegisterRequest{Node: "01N9", Name: "n9", Agent: model.AgentInfo{BootID: "b1", Address: "127.0.0.1"}}
	for history, want := range map[string]model.Code{
		"": "", "01CLUSTER": "", "01CLUSTER/l1": "", "01CLUSTER/l1,l2": "",
		"01CLUSTER/l1,l2,l3": model.CodeConflict, "01CLUSTER/x": model.CodeConflict, "01CLUSTER/": model.CodeInvalid,
	} {
		ask.Cluster = history
		reply, err := c.Register(t.Context(), ask)
		switch {
		case want != "":
			wantCode(t, err, want)
		case err != nil:
			t.Errorf("a node that follows %q: %v", history, err)
		case reply.Cluster != "01CLUSTER/l1,l2":
			t.Errorf("a node that follows %q is told to follow %q", history, reply.Cluster)
		}
	}
	// The rule is the same for the other calls of a registered node, but the code is not_caught_up.
	known := must(transport.NewClient(transport.ClientConfig{
		Addresses:   []string{"https://" + r.servers["s1"].address},
		Credentials: must(r.ca.Credentials(pki.RoleAgent, "n2"))(t), RetryFor: -1,
	}))(t)
	t.Cleanup(known.Close)
	for history, want := range map[string]model.Code{"01CLUSTER/l1": "", "01CLUSTER/l1,l2,l3": model.CodeNotCaughtUp} {
		_, services := known.Services(t.Context(), transport.ServicesRequest{Node: "01N2", Cluster: history})
		_, assignments := known.Assignments(t.Context(),
			transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2"), Cluster: history})
		_, report := known.Report(t.Context(),
			transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"), Cluster: history})
		for call, err := range map[string]error{"services": services, "assignments": assignments, "report": report} {
			if want != "" {
				wantCode(t, err, want)
			} else if err != nil {
				t.Errorf("%s of a node that follows %q: %v", call, history, err)
			}
		}
	}
}

// After a restore, an agent may have seen a newer state than the leader has. The leader asks the agent to register.
// This registration makes the leader's state newer than what the agent saw. A follower sends the agent to another
// server.
func TestAgentHasSeenANewerState(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	r.apply(&fsm.RestoreMark{})
	q := transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2"),
		Seen: model.Seen{Incarnation: 1, Index: 90_000}}
	_, err := r.client(pki.RoleAgent, "n2", "s2").Assignments(t.Context(), q)
	wantCode(t, err, model.CodeNotCaughtUp)
	c := r.client(pki.RoleAgent, "n2", "s1")
	if got := must(c.Assignments(t.Context(), q))(t); !got.Register {
		t.Errorf("the leader serves an agent that does not obey: %+v", got)
	}
	agent := model.AgentInfo{BootID: "b1", Address: "127.0.0.1"}
	reply :=
		must(c.Register(t.Context(), transport.RegisterRequest{Node: "01N2", Name: "n2", Agent: agent, Seen: q.Seen}))(t)
	q.Epoch = reply.Epoch
	if got := must(c.Assignments(t.Context(), q))(t); got.Register ||
		!q.Seen.Before(model.Seen{Incarnation: got.Incarnation, Index: got.Index}) {
		t.Errorf("behind its registration: incarnation %d, index %d, register %v", got.Incarnation, got.Index, got.Register)
	}
}

// A lagging server waits up to 2 s for a registration that it does not know yet. Without this wait, the agent would
// register once more.
func TestAgentOfALaggingServer(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	c := r.client(pki.RoleAgent, "late", "s2")
	polled, served := make(chan transport.Assignments, 1), make(chan error, 1)
	ctx, epoch := t.Context(), r.machine.State().Index+1
	go func() {
		got, err := c.Assignments(ctx, transport.AssignmentsRequest{Node: "01LATE", Epoch: epoch})
		if err != nil {
			t.Errorf("assignments: %v", err)
		}
		polled <- got
	}()
	go func() {
		_, err := c.Services(ctx, transport.ServicesRequest{Node: "01LATE"})
		served <- err
	}()
	eventually(t, "both wait for the node", func() bool { return r.waits("assigned/01LATE") >= 2 })
	r.apply(&fsm.NodeRegister{ID: "01LATE", Name: "late", Agent: model.AgentInfo{BootID: "b1", Address: "127.0.0.1"}})
	if got := <-polled; got.Register || got.Index == 0 {
		t.Errorf("a registration that came a moment later: %+v", got)
	}
	if err := <-served; err != nil {
		t.Errorf("services: %v", err)
	}
	if got := must(c.Assignments(t.Context(),
		transport.AssignmentsRequest{Node: "01LATE", Epoch: epoch + 1}))(t); !got.Register {
		t.Errorf("a registration that never came: %+v", got)
	}
}

// No server waits for a registration that a restore has lost, because it will never arrive. The agent must register
// again before the servers consider its node silent.
func TestAgentOfALostRegistration(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	lost := r.epoch("01N2") + 5
	r.apply(&fsm.RestoreMark{})
	began := time.Now()
	got := must(r.client(pki.RoleAgent, "n2", "s2").
		Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N2", Epoch: lost}))(t)
	if took := time.Since(began); !got.Register || took >= 2*time.Second {
		t.Errorf("register again: %v, after %s", got.Register, took)
	}
}

func TestAgentServices(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.client(pki.RoleAgent, "n2")
	first := must(c.Services(t.Context(), transport.ServicesRequest{Node: "01N2"}))(t)
	if len(first.Services) != 1 || first.Services[0].Expose != 8080 || len(first.Services[0].Backends) != 2 ||
		first.Services[0].Backends[1].Address != "127.0.0.1:20001" {
		t.Fatalf("services: %+v", first)
	}
	// A call with an index from before a restore is answered at once, because the restored state may need a long time to
	// reach this index.
	asked, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if ahead, err := c.Services(asked,
		transport.ServicesRequest{Node: "01N2", Index: first.Index + 1000, Wait: 45 * model.Second}); err != nil ||
		ahead.Index != first.Index {
		t.Errorf("asked with an index of the future: %+v, %v", ahead, err)
	}
	done := make(chan transport.Services, 1)
	ctx := t.Context()
	go func() {
		got, err := c.Services(ctx, transport.ServicesRequest{Node: "01N2", Index: first.Index, Wait: 30 * model.Second})
		if err != nil {
			t.Errorf("services: %v", err)
		}
		done <- got
	}()
	r.place("inst-c", 2, "01N2", model.ObservedReady)
	if got := <-done; len(got.Services[0].Backends) != 3 || got.Services[0].Generation <= first.Services[0].Generation {
		t.Errorf("after an instance became ready: %+v", got)
	}
	at := r.machine.State().Index
	r.apply(&fsm.RestoreMark{})
	for _, unconfirmed := range []bool{true, false} {
		got := must(c.Services(t.Context(), transport.ServicesRequest{Node: "01N2", Index: at, Wait: 30 * model.Second}))(t)
		if got.Unconfirmed != unconfirmed {
			t.Errorf("a restore is not confirmed: %t, told %+v", unconfirmed, got)
		}
		at = got.Index
		r.apply(&fsm.RestoreMark{Confirm: true})
	}
}

// Garbage in the agents' protocol is refused. So is CBOR with a field that only a newer version knows.
func TestAgentGarbage(t *testing.T) {
	r := newRig(t)
	r.world()
	newer := must(transport.EncodeCBOR(map[int]any{1: "01N1", 2: uint64(1), 99: true}))(t)
	who := model.Subject{Kind: model.SubjectAgent, Name: "n1"}
	answer := r.servers["s1"].api.AnswerAgent
	for _, body := range []string{"", "\xff\xff", strings.Repeat("\x9f", 1000), string(newer)} {
		_, err := answer(t.Context(), who, transport.CallReport, []byte(body))
		wantCode(t, err, model.CodeInvalid)
	}
	_, err := answer(t.Context(), who, 99, newer)
	wantCode(t, err, model.CodeNoRoute)
}

// A server that asks another server gets the other server's answer.
func TestPeers(t *testing.T) {
	r := newRig(t)
	c := transport.NewPeerClient(transport.Dialer{Credentials: must(r.ca.Credentials(pki.RoleServer, "s2"))(t)})
	t.Cleanup(c.Close)
	answer, err := c.AskPeer(t.Context(), r.servers["s1"].address, "tick", []byte("body"))
	if err != nil || string(answer) != "tick:body" {
		t.Errorf("got %q, %v", answer, err)
	}
}

// A second agent of a node is refused while the first agent's heartbeats arrive. The first agent may register again
// after a restart or a reboot of its machine.
func TestSecondAgentOfANode(t *testing.T) {
	r := newRig(t)
	c := r.client(pki.RoleAgent, "n1")
	first := model.AgentInfo{BootID: "b1", Address: "127.0.0.1", Machine: "os/fw"}
	register := func(agent model.AgentInfo) (transport.RegisterReply, error) {
		return c.Register(t.Context(), transport.RegisterRequest{Node: "01N1", Name: "n1", Agent: agent})
	}
	must(register(first))(t)
	must(register(first))(t)
	must(register(model.AgentInfo{BootID: "b2", Address: "127.0.0.1", Machine: "os/fw"}))(t)
	for what, copied := range map[string]model.AgentInfo{
		"another address": {BootID: "b3", Address: "127.0.0.9", Machine: "os/fw"},
		"another machine": {BootID: "b3", Address: "127.0.0.1", Machine: "os/other"},
		"the same kernel": {BootID: "b2", Address: "127.0.0.9"},
	} {
		_, err := register(copied)
		wantCode(t, err, model.CodeNodeTaken)
		if err == nil || !strings.Contains(err.Error(), "127.0.0.1") || !strings.Contains(err.Error(), copied.Address) {
			t.Errorf("%s: the refusal names not both: %v", what, err)
		}
	}
	r.mu.Lock()
	r.live = map[model.NodeID]fsm.Liveness{"01N1": {Age: model.Hour, Gossip: fsm.GossipDead}}
	r.mu.Unlock()
	must(register(model.AgentInfo{BootID: "b3", Address: "127.0.0.9", Machine: "os/fw"}))(t)
}
