package fsm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
)

// above returns a report of n1's agent about instances that are above their disk limit.
func above(gen uint64, uses ...model.DiskUse) *NodeReport {
	return &NodeReport{ID: "n1", Self: &model.SelfReport{Gen: gen, Disk: uses, Measured: true}}
}

// An instance that is reported above its disk limit is recorded until a later report with measurements does not list
// it, or an inventory comes from an agent that measures nothing. A report of an agent that has not measured yet does
// not change the record. The node does not become degraded.
func TestInstanceAboveItsDiskLimit(t *testing.T) {
	s := run(t, oneNode(t, model.DefaultSettings()), 1000, &JobSubmit{Spec: webSpec()})
	s = run(t, s, 1000, placed("i1", "web/api", 0, "n1", 20000))
	s = run(t, s, 1000, observed("n1", "i1", model.ObservedReady))
	much, more := model.DiskUse{ID: "i1", UsedBytes: 30, LimitBytes: 20},
		model.DiskUse{ID: "i1", UsedBytes: 40, LimitBytes: 20}
	for _, step := range []struct {
		name string
		does *NodeReport
		used int64
		news bool // what News returns before the report is applied
	}{
		{"it is above", above(2, much), 30, true},
		{"told again", above(2, much), 30, false},
		{"it grows, told twice, beside a stranger",
			above(3, more, model.DiskUse{ID: "zz", UsedBytes: 2, LimitBytes: 1}, model.DiskUse{ID: "i0", LimitBytes: 1},
				model.DiskUse{ID: "/", UsedBytes: 2, LimitBytes: 1}, more), 40, true},
		{"a late word", above(1), 40, false},
		{"something else", &NodeReport{ID: "n1"}, 40, false},
		{"not measured", &NodeReport{ID: "n1", Self: &model.SelfReport{Gen: 4}}, 40, true},
		{"it shrinks", above(5), 0, true},
		{"above again", above(6, much), 30, true},
		{"an agent that measures nothing", &NodeReport{ID: "n1", Full: true, Instances: []model.InstanceStatus{{ID: "i1"}}},
			0, true},
		{"nothing more", &NodeReport{ID: "n1", Full: true, Instances: []model.InstanceStatus{{ID: "i1"}}}, 0, false},
	} {
		n, _ := s.Nodes.Get("n1")
		step.does.Epoch = n.Agent.Epoch
		if got := step.does.News(&s); got != step.news {
			t.Errorf("%s: news: %v", step.name, got)
		}
		s = run(t, s, 2000, step.does)
		inst, _ := s.Instances.Get("i1")
		use, over := s.DiskUse(inst)
		if use.UsedBytes != step.used || over != (step.used > 0) {
			t.Errorf("%s: it uses %+v, above: %v", step.name, use, over)
		}
		n, _ = s.Nodes.Get("n1")
		if others := len(n.Self.Disk) - min(len(n.Self.Disk), 1); others > 0 && step.used != 40 {
			t.Errorf("%s: kept %+v", step.name, n.Self.Disk)
		}
		if n.Troubled() || n.State() != model.NodeActive {
			t.Errorf("%s: the node is %s: %+v", step.name, n.State(), n.Self)
		}
	}
	var told []string
	for _, e := range s.Events.All() {
		if e.Type == model.EventDisk {
			told = append(told, fmt.Sprint(e.Subject, " ", e.After, " ", e.Data["used_bytes"], "/", e.Data["limit_bytes"]))
		}
	}
	want := []string{
		"instance/i1 above_limit 30/20", "instance/i1 within_limit /20", "instance/i1 above_limit 30/20",
		"instance/i1 within_limit /20",
	}
	if !slices.Equal(told, want) {
		t.Errorf("events: %q, want %q", told, want)
	}
}

// At most MaxDiskUses instances of a node are recorded as above their disk limit. Their texts are cut.
func TestDiskUsesAreBounded(t *testing.T) {
	s := oneNode(t, model.DefaultSettings())
	var uses []model.DiskUse
	for i := range 2 * model.MaxDiskUses {
		uses = append(uses, model.DiskUse{ID: model.InstanceID(fmt.Sprint("i", i)), UsedBytes: 2, LimitBytes: 1,
			Dir: string(make([]byte, 2*maxAgentText))})
	}
	c := above(2, uses...)
	n, _ := s.Nodes.Get("n1")
	c.Epoch = n.Agent.Epoch
	s = run(t, s, 2000, c)
	n, _ = s.Nodes.Get("n1")
	if got := n.Self.Disk; len(got) != model.MaxDiskUses || len(got[0].Dir) > maxAgentText {
		t.Errorf("%d are kept, the first with %d bytes", len(got), len(got[0].Dir))
	}
	if !soundDisk(n.Self.Disk) || soundDisk([]model.DiskUse{{ID: "b"}, {ID: "a"}}) ||
		soundDisk([]model.DiskUse{{ID: "a"}, {ID: "a"}}) {
		t.Error("soundDisk does not tell")
	}
}

// A disk limit is not part of an instance's claims.
func TestDiskLimitIsNoClaim(t *testing.T) {
	s := NewState()
	spec := model.GroupSpec{Resources: model.Resources{MemoryBytes: 1, DiskBytes: 1 << 30}}
	if got := s.ClaimsOf(&spec, nil).Resources.DiskBytes; got != 0 {
		t.Errorf("it claims %d bytes of disk", got)
	}
}
