package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Whoever starts a drain as a step of a roll must be allowed to drain all nodes of the roll.
func TestRollNeedsAllItsNodes(t *testing.T) {
	r := twoTeams(t)
	bob := r.client(pki.RoleCLI, "bob")
	drain := func(id string, nodes ...string) error {
		_, _, err := bob.Do(t.Context(), http.MethodPost, "/v1/drains", nil, map[string]any{"nodes": []string{"n1"},
			"id": id, "roll": map[string]any{"id": "R1", "nodes": nodes, "exec": "true"}})
		return err
	}
	for _, other := range []string{"n2", "01N2", "none"} {
		wantCode(t, drain("d-"+other, "n1", other), model.CodeForbidden)
	}
	if err := drain("d1", "n1"); err != nil {
		t.Error(err)
	}
}

// The options of a drain name no group and no node that the reader may not read. They show the command of a roll only
// to those who may drain all of its nodes.
func TestDrainOptionsHideNames(t *testing.T) {
	r := twoTeams(t)
	r.apply(&fsm.BindingAdd{Role: "viewer", To: "cert:carol"})
	r.apply(&fsm.DrainStart{ID: "step", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour,
		AcceptDowntime: []string{"web/http", "bank/http", "*"},
		Roll:           &model.Roll{ID: "R1", Nodes: []string{"n1", "n2"}, Exec: "reboot {node}"}}})
	for name, want := range map[string]string{
		"alice": "[web/http bank/http *] [n1 n2] reboot {node}",
		"bob":   "[web/http hidden *] [n1 hidden] hidden",
		"carol": "[web/http bank/http *] [n1 n2] hidden",
	} {
		show := func(drain map[string]any) string {
			o := drain["options"].(map[string]any)
			roll := o["roll"].(map[string]any)
			return fmt.Sprint(o["accept_downtime"], " ", roll["nodes"], " ", roll["exec"])
		}
		c := r.client(pki.RoleCLI, name)
		if got := show(get(t, c, "/v1/drains/step")); got != want {
			t.Errorf("%s sees %s, want %s", name, got, want)
		}
		for _, one := range get(t, c, "/v1/drains")["items"].([]any) {
			if d := one.(map[string]any); d["id"] == "step" && show(d) != want {
				t.Errorf("%s sees %s in the list, want %s", name, show(d), want)
			}
		}
		if name == "bob" { // the answer to a write too
			paused := post(t, c, "/v1/drains/step/pause", nil)["drain"].(map[string]any)
			if got := show(paused); got != want {
				t.Errorf("the answer to a pause shows %s", got)
			}
		}
	}
}
