package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A job shows which nodes its current version avoids, and why. It does not show cordoned nodes. A new version avoids no
// node.
func TestJobTellsWhatItAvoids(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N2", model.ObservedFailed)
	avoids := func() []any { return get(t, r.cli(), "/v1/jobs/web")["avoids"].([]any) }
	list := avoids()
	if len(list) != 1 {
		t.Fatalf("after a failure on n2 the job avoids %v", list)
	}
	entry := list[0].(map[string]any)
	if entry["group"] != "web/http" || entry["node"] != "n2" || entry["node_id"] != "01N2" ||
		entry["reason"] != "crash_loop" {
		t.Errorf("the job avoids %v", entry)
	}
	node := get(t, r.cli(), "/v1/nodes/n2")["avoid"].([]any)[0].(map[string]any)
	if fmt.Sprint(node["version"]) != "1" || node["reason"] != "crash_loop" {
		t.Errorf("the node is avoided as %v", node)
	}
	r.apply(&fsm.NodeIntent{ID: "01N2", Intent: model.IntentCordoned})
	if list := avoids(); len(list) != 0 {
		t.Errorf("it avoids a node that takes nothing anyway: %v", list)
	}
	r.apply(&fsm.NodeIntent{ID: "01N2", Intent: model.IntentActive})
	next := spec("web", 3)
	next.Groups[0].Exec.Command = "/bin/mended"
	r.apply(&fsm.JobSubmit{Spec: next})
	if list := avoids(); len(list) != 0 {
		t.Errorf("the next version avoids %v", list)
	}
}

// If a replica is evicted with avoid=true, its group also avoids the node. Canceling the eviction also ends the
// avoidance.
func TestEvictedReplicaAvoidsItsNode(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	web := spec("web", 2)
	web.Groups[0].Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeReplicated, Path: "/data"}}
	web.Groups[0].RoleCheck = &model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
	r.apply(&fsm.JobSubmit{Spec: web})
	r.place("inst-a", 0, "01N1", model.ObservedReady)
	avoided := func() int { return len(get(t, r.cli(), "/v1/nodes/n1")["avoid"].([]any)) }
	reply := post(t, r.cli(), "/v1/instances/inst-a/evict", map[string]any{"avoid": true})
	if reply["avoid_until"] == nil || avoided() != 1 {
		t.Errorf("after the eviction %d groups avoid the node, until %v", avoided(), reply["avoid_until"])
	}
	reply = post(t, r.cli(), "/v1/instances/inst-a/evict", map[string]any{"cancel": true})
	inst, _ := r.machine.State().Instances.Get("inst-a")
	if !isTrue(reply["avoid_ended"]) || avoided() != 0 || inst.Eviction.Requested {
		t.Errorf("after the cancel %d groups avoid the node, ended %v, evicted %v", avoided(), reply["avoid_ended"],
			inst.Eviction.Requested)
	}
}
