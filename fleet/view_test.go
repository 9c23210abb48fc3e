package fleet

import (
	"reflect"
	"testing"

	"github.com/outspan/outspan/api/frame"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// With a job or a node, nothing tells what the reader may not read from what does not exist.
func TestScopeHidesWhatExists(t *testing.T) {
	m := newFleet(t, 4, 3, 4)
	p := newTestPublisher(m)
	look := func(*fsm.State) (Sight, error) {
		return Sight{Key: "some", Node: func(name string) bool { return name == "node-0000" },
			Instance: func(job model.JobName, _ model.ClassName, node string) bool {
				return job == "job-0001" && node == "node-0000"
			}}, nil
	}
	counts := func(scope Scope) frame.Counts {
		c := must(p.join(scope, look))(t)
		defer p.leave(c)
		var seen picture
		for b := must(p.take(c))(t); b != nil; b = must(p.take(c))(t) {
			must(0, seen.take(b))(t)
		}
		return seen.last.Counts
	}
	if c := counts(Scope{}); c.HiddenNodes != 3 || c.HiddenInstances != 11 {
		t.Errorf("of everything: %+v", c)
	}
	none := counts(Scope{Job: "none"})
	for _, scope := range []Scope{{Job: "job-0002"}, {Node: "node-0002"}, {Node: "none"},
		{Job: "job-0002", Node: "node-0002"}} {
		if c := counts(scope); !reflect.DeepEqual(c, none) {
			t.Errorf("%+v: %+v, want %+v", scope, c, none)
		}
	}
	if c := counts(Scope{Job: "job-0001"}); c.HiddenInstances != 0 || c.Instances["total"] != 1 {
		t.Errorf("of a job in part: %+v", c)
	}
}
