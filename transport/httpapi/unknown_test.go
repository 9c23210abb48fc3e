package httpapi_test

import (
	"slices"
	"testing"

	"github.com/outspan/outspan/fsm"
)

// After a restore, the list of unknown instances names the nodes that have not sent their inventory yet.
func TestUnknownInstancesNamesNodesThatOwe(t *testing.T) {
	r := newRig(t)
	r.world()
	owing := func() (names []string) {
		list, ok := get(t, r.cli(), "/v1/unknown-instances")["inventory_missing_nodes"].([]any)
		if !ok {
			t.Fatal("inventory_missing_nodes is no list")
		}
		for _, v := range list {
			name, _ := v.(string)
			names = append(names, name)
		}
		return names
	}
	if got := owing(); len(got) != 0 {
		t.Errorf("without a restore %v owe their inventories", got)
	}
	var names []string
	for _, n := range r.machine.State().Nodes.All() {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	r.apply(&fsm.RestoreMark{})
	if got := owing(); !slices.Equal(got, names) {
		t.Errorf("after a restore %v owe their inventories, want %v", got, names)
	}
	s := r.machine.State()
	r.apply(&fsm.NodeReport{ID: "01N2", Epoch: r.epoch("01N2"), Full: true, Incarnation: s.Incarnation})
	if got := owing(); len(got) != len(names)-1 || slices.Contains(got, "n2") {
		t.Errorf("after n2 has told %v owe their inventories", got)
	}
}
