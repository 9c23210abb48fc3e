package httpapi_test

import (
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// proves that the name of a server is not mistaken for a prefix of an instance's id.
func TestWhyOfServerName(t *testing.T) {
	r := newRig(t, "s1")
	r.world()
	r.place("s1x9k2", 2, "01N2", model.ObservedReady)
	_, p := raw(t, r, pki.RoleCLI, "alice", "GET", "/v1/why?subject=s1", "", "")
	if p == nil || p.Code != model.CodeNotFound || p.Message != "s1 is a server, which has nothing to explain" {
		t.Errorf("why of a server: %+v", p)
	}
	for subject, want := range map[string]string{"s1x": "instance/s1x9k2",
		"instance/s1": "instance/s1x9k2", "n1": "node/01N1"} {
		if got := get(t, r.cli(), "/v1/why?subject="+subject)["subject"]; got != want {
			t.Errorf("why %s is of %v, want %s", subject, got, want)
		}
	}
}
