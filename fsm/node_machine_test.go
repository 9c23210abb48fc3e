package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// A registration by another machine is refused while an instance that must not run twice may still run on the first
// machine. It is also refused if its agent has a copied data directory and was refused before. It is accepted once the
// first machine is confirmed dead. A registration after a reboot of the same machine is always accepted.
func TestAnotherMachineTakesNoNode(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count, spec.Groups[0].Replacement = 1, model.ReplacementSpec{Identity: "same"}
	first := model.AgentInfo{BootID: "boot", Address: "127.0.0.1", Machine: "os/fw", Born: 7, Key: []byte("k")}
	for _, tt := range []struct {
		name  string
		agent model.AgentInfo
		free  bool // the node's instances may run twice
		dead  bool // the first machine is confirmed dead
		known bool // the agent was refused before, because it ran on a copy
		want  model.Code
	}{
		{name: "the agent was restarted", agent: first},
		{name: "a reboot", agent: model.AgentInfo{BootID: "boot 2", Address: "127.0.0.1", Machine: "os/fw"}},
		{name: "a reboot with another address",
			agent: model.AgentInfo{BootID: "boot 2", Address: "10.0.0.9", Machine: "os/fw"}},
		{name: "a reboot as a user who can't read the firmware",
			agent: model.AgentInfo{BootID: "boot 2", Address: "127.0.0.1", Machine: "os/"}},
		{name: "another address", agent: model.AgentInfo{BootID: "boot", Address: "10.0.0.9", Machine: "os/fw"}},
		{name: "a copy", agent: model.AgentInfo{BootID: "boot 2", Address: "10.0.0.9", Machine: "os/other"},
			want: model.CodeNodeTaken},
		{name: "a copy with the address", agent: model.AgentInfo{BootID: "boot 2", Address: "127.0.0.1", Machine: "os/other"},
			want: model.CodeNodeTaken},
		{name: "a copy that can't read its firmware",
			agent: model.AgentInfo{BootID: "boot 2", Address: "10.0.0.9", Machine: "os/"}, want: model.CodeNodeTaken},
		{name: "a copy without ids", agent: model.AgentInfo{BootID: "boot 2", Address: "10.0.0.9"},
			want: model.CodeNodeTaken},
		{name: "a container on the same kernel",
			agent: model.AgentInfo{BootID: "boot", Address: "10.0.0.9", Machine: "other/fw"}, want: model.CodeNodeTaken},
		{name: "a copied container on the same kernel",
			agent: model.AgentInfo{BootID: "boot", Address: "10.0.0.9", Machine: "os/fw", Born: 8}, want: model.CodeNodeTaken},
		{name: "a copied container with the address",
			agent: model.AgentInfo{BootID: "boot", Address: "127.0.0.1", Machine: "os/fw", Born: 8}, want: model.CodeNodeTaken},
		{name: "a reboot of a machine whose disk was replaced",
			agent: model.AgentInfo{BootID: "boot 2", Address: "127.0.0.1", Machine: "os/fw", Born: 8}},
		{name: "a copy where any number may run",
			agent: model.AgentInfo{BootID: "boot 2", Address: "10.0.0.9", Machine: "os/other"}, free: true},
		{name: "a copied data directory where any number may run",
			agent: model.AgentInfo{BootID: "boot", Address: "10.0.0.9", Machine: "os/fw", Born: 8}, free: true},
		{name: "the same, refused before", agent: model.AgentInfo{BootID: "boot", Address: "10.0.0.9", Machine: "os/fw",
			Born: 8}, free: true, known: true, want: model.CodeNodeTaken},
		{name: "the same, and the first is confirmed dead",
			agent: model.AgentInfo{BootID: "boot", Address: "10.0.0.9", Machine: "os/fw", Born: 8},
			free:  true, known: true, dead: true},
		{name: "the first is confirmed dead",
			agent: model.AgentInfo{BootID: "boot 2", Address: "10.0.0.9", Machine: "os/other"}, dead: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := spec
			if tt.free {
				job = webSpec()
			}
			s := leaseState(t, job, 6*model.Second)
			r := register("n1")
			r.Agent = first
			s = run(t, s, 2000, r)
			if tt.dead {
				s = run(t, s, 20_000, offline(s, "n1"), &NodeConfirmDead{ID: "n1", Force: true})
			}
			again := *r
			again.Agent, again.Refused = tt.agent, tt.known
			_, refusal := attempt(s, s.Now, &again)
			wantCode(t, "S2: register", refusal, tt.want)
		})
	}
}

// After a restore, an agent that was refused as a copy may register before the original does. The copy is refused again
// if the state does not have the node. If the state has the node, the copy is refused until an agent has sent the
// node's inventory or the node is confirmed dead. The original is accepted.
func TestRefusedCopyAfterARestore(t *testing.T) {
	original, refused := register("n1"), register("n1")
	refused.Refused = true
	take := func(s State, c *NodeRegister) *model.Error {
		_, refusal := attempt(s, s.Now, c)
		return refusal
	}

	empty := run(t, NewState(), 1000, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()},
		&RestoreMark{})
	wantCode(t, "the state lacks the node, the copy", take(empty, refused), model.CodeNodeTaken)
	wantCode(t, "the state lacks the node, the original", take(empty, original), "")
	confirmed := run(t, empty, 1000, &RestoreMark{Confirm: true})
	wantCode(t, "the restore is confirmed, the copy", take(confirmed, refused), model.CodeNodeTaken)

	s := run(t, aloneState(t), 2000, &RestoreMark{})
	wantCode(t, "the state has the node, the copy", take(s, refused), model.CodeNodeTaken)
	dead := run(t, s, 20_000, offline(s, "n1"), &NodeConfirmDead{ID: "n1", Force: true})
	wantCode(t, "the original is confirmed dead, the copy", take(dead, refused), "")
	s = run(t, s, 2000, original)
	wantCode(t, "the original has registered, the copy", take(s, refused), model.CodeNodeTaken)
	s = inventory(t, s, "n1", nil)
	wantCode(t, "the original was refused too, and has told what runs", take(s, refused), "")
}
