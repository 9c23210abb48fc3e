package httpapi_test

import (
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A job whose data is on an offline node is degraded, and says why. It stays degraded if the node is confirmed dead.
//
// proves P19
func TestJobIsDegraded(t *testing.T) {
	r := withVolume(t)
	status := func(want string, code any) {
		t.Helper()
		job := get(t, r.cli(), "/v1/jobs/web")
		group := job["groups"].([]any)[0].(map[string]any)
		if job["status"] != want || group["degraded"] != code {
			t.Errorf("the job is %v, its group degraded for %v; want %s, %v", job["status"], group["degraded"], want, code)
		}
	}
	status("running", nil)
	n, _ := r.machine.State().Nodes.Get("01N1")
	r.apply(&fsm.NodeHealth{ID: "01N1", Health: model.HealthOffline, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch})
	status("degraded", "volume_home_node_offline")
	if jobs := get(t, r.cli(), "/v1/status")["jobs"].(map[string]any); jobs["degraded"] == nil {
		t.Errorf("status does not count it: %v", jobs)
	}
	r.apply(&fsm.NodeConfirmDead{ID: "01N1", Force: true})
	status("degraded", "volume_home_node_offline")
}
