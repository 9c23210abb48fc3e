package fsm

import (
	"reflect"
	"testing"

	"github.com/outspan/outspan/model"
)

// TestKeeps: an instance that a restored state does not know keeps running, unless it is already to stop, its slot is
// gone, or its slot was filled after the restore was confirmed (S17).
func TestKeeps(t *testing.T) {
	x := model.Holding{ID: "x", Group: aloneGroup}
	i1, _ := aloneState(t).Instances.Get("i1")
	created := i1.Marks.Created
	tests := []struct {
		name        string
		unconfirmed bool
		confirmed   model.Time
		holding     func(h *model.Holding)
		group       func(g *Group)
		want        bool
	}{
		{name: "no restore was ever confirmed", want: true},
		{name: "the slot was filled before the restore was confirmed", confirmed: created + 1, want: true},
		{name: "the slot was filled when the restore was confirmed", confirmed: created},
		{name: "the slot was filled since", confirmed: created - 1},
		{name: "filled since the last one, and restored again", unconfirmed: true, confirmed: created - 1, want: true},
		{name: "it ends by itself", holding: func(h *model.Holding) { h.Ends = true }},
		{name: "another slot than there are", holding: func(h *model.Holding) { h.Slot = 1 }},
		{name: "another group than there are", holding: func(h *model.Holding) { h.Group = "web/none" }},
		{name: "the state knows it", holding: func(h *model.Holding) { h.ID = "i1" }},
		{name: "the group is removed", group: func(g *Group) { g.Removed = true }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state := aloneState(t)
			s, h := state.fork(), x
			s.Unconfirmed, s.Confirmed = tt.unconfirmed, tt.confirmed
			if tt.holding != nil {
				tt.holding(&h)
			}
			if tt.group != nil {
				edit(&s.Groups, aloneGroup, tt.group)
			}
			if got := s.Keeps(h); got != tt.want {
				t.Errorf("kept: %v, want %v", got, tt.want)
			}
		})
	}
}

// Two reports of an unknown instance are equal only if they agree in every field.
func TestEqualHoldings(t *testing.T) {
	for _, f := range fieldsOf(reflect.TypeFor[model.Holding]()) {
		var h model.Holding
		sample(reflect.ValueOf(&h).Elem().FieldByIndex(f.Index), f.Name, 1)
		if equalHoldings(h, model.Holding{}) || !equalHoldings(h, h) {
			t.Errorf("a difference in %s is not seen", f.Name)
		}
	}
}

// wasOn returns true if the state has an instance or a volume of the group on the node.
func TestWasOn(t *testing.T) {
	state := busyState(t)
	s := state.fork()
	edit(&s.Volumes, "web/store/0/data", func(v *Volume) { v.Home = "n2" })
	for _, tt := range []struct {
		node  model.NodeID
		group model.GroupID
		want  bool
	}{
		{"n1", "web/store", true}, {"n2", "web/store", true}, // an instance on n1, a volume on n2
		{"n1", "web/api", true}, {"n2", "web/api", true}, // the instance on n2 has stopped, but has a row
		{"n2", "web/sto", false}, {"n2", "web/app", false}, {"n3", "web/store", false},
	} {
		if got := s.wasOn(tt.node, tt.group); got != tt.want {
			t.Errorf("%s on %s: %v", tt.group, tt.node, got)
		}
	}
}

// forgetAside removes a node from the lists of data that volumes left behind. It records a loss for each such volume,
// except for a volume without a home, whose loss is recorded already.
func TestForgetAside(t *testing.T) {
	state := busyState(t)
	for home, want := range map[model.NodeID]string{"n1": "two", "": "before"} {
		s := state.fork()
		edit(&s.Volumes, "web/store/0/data", func(v *Volume) {
			v.Home, v.Lost = home, &VolumeLoss{Node: "before"}
			v.Aside = []AsideData{{Node: "n2", Epoch: 7}, {Node: "n3", Epoch: 8}}
		})
		s.forgetAside("n2", "two")
		v, _ := s.Volumes.Get("web/store/0/data")
		if v.Lost.Node != want || len(v.Aside) != 1 || v.Aside[0].Node != "n3" {
			t.Errorf("with the home %q: left behind %+v, lost with %q, want %q", home, v.Aside, v.Lost.Node, want)
		}
	}
}
