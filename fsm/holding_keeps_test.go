package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// TestKeeps: an instance that a restored state does not know keeps running, unless it must stop, its slot is gone, or
// the slot was filled after the restore was confirmed (S17).
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
				edit(s.Groups, aloneGroup, tt.group)
			}
			if got := s.Keeps(h); got != tt.want {
				t.Errorf("kept: %v, want %v", got, tt.want)
			}
		})
	}
}
