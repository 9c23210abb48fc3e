package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport/httpapi"
)

// rotating is an httpapi.GossipKeys whose rotation is in progress once the state has gossip/2. It waits for agent:n1.
type rotating struct{ forced atomic.Int64 }

// GossipKeys implements httpapi.GossipKeys.
func (*rotating) GossipKeys(s *fsm.State) (v api.GossipKeys, _ error) {
	for _, row := range s.KeysOf(model.KeyGossip) {
		v.Keys = append(v.Keys, api.GossipKey{Name: row.Name, Phase: row.Phase})
	}
	v.Rotating, v.WaitsFor = len(v.Keys) > 1, 1
	v.Lacking = []api.GossipLacking{{Subject: "agent:n0"}, {Subject: "agent:n1", Waits: true}}
	return v, nil
}

// RotateGossip implements httpapi.GossipKeys.
func (*rotating) RotateGossip(s *fsm.State) ([]fsm.Command, error) {
	if len(s.KeysOf(model.KeyGossip)) > 1 {
		return nil, nil
	}
	return []fsm.Command{&fsm.KeyPut{Name: "gossip/2", Version: 1, Phase: model.KeyIncoming, Under: "data/1",
		Sealed: []byte("sealed")}}, nil
}

// ForceGossip implements httpapi.GossipKeys.
func (g *rotating) ForceGossip(*fsm.State) { g.forced.Add(1) }

// A rotation begins once. A second request begins none, and still forces the one in progress.
func TestRotateGossipKey(t *testing.T) {
	r := newRig(t)
	g := &rotating{}
	r.startWith("s1", func(c *httpapi.Config) { c.Gossip = g })
	_, _, err := r.cli().Do(t.Context(), http.MethodGet, "/v1/trust/gossip-keys", nil, nil)
	wantCode(t, err, model.CodeBusy) // no CA yet
	r.manage()
	r.apply(&fsm.KeyPut{Name: "gossip/1", Version: 1, Phase: model.KeyActive, Under: "data/1", Sealed: []byte("sealed")})

	rotate := func(query string) (reply api.GossipRotateReply) {
		t.Helper()
		raw, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/trust/gossip-keys/rotate", values(query), nil)
		if err == nil {
			err = json.Unmarshal(raw, &reply)
		}
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	for i, step := range []struct {
		query           string
		begun, rotating bool
		forced          int64
	}{
		{"dry_run=true&force=true", true, true, 0},
		{"request_id=a", true, true, 0},
		{"request_id=a", true, true, 0},
		{"", false, true, 0},
		{"dry_run=true", false, true, 0},
		{"force=true", false, true, 1},
	} {
		reply := rotate(step.query)
		if reply.Begun != step.begun || reply.Gossip.Rotating != step.rotating || g.forced.Load() != step.forced {
			t.Errorf("step %d, %s: %+v, forced %d times", i, step.query, reply, g.forced.Load())
		}
	}
	if keys := r.machine.Current().KeysOf(model.KeyGossip); len(keys) != 2 || keys[1].CreatedIndex == 0 {
		t.Errorf("the state has %d gossip keys", len(keys))
	}
}

// A cluster whose gossip key is a file says so.
func TestGossipKeyIsAFile(t *testing.T) {
	r := newRig(t)
	_, _, err := r.cli().Do(t.Context(), http.MethodGet, "/v1/trust/gossip-keys", nil, nil)
	wantCode(t, err, model.CodeNotSupported)
	_, _, err = r.cli().Do(t.Context(), http.MethodPost, "/v1/trust/gossip-keys/rotate", nil, nil)
	wantCode(t, err, model.CodeNotSupported)
}

// A rotation that has waited for members for more than 10 minutes is a problem.
func TestGossipRotationWaits(t *testing.T) {
	r := newRig(t)
	r.startWith("s1", func(c *httpapi.Config) { c.Gossip = &rotating{} })
	r.manage()
	key := func(name model.KeyName, phase model.KeyPhase) {
		r.apply(&fsm.KeyPut{Name: name, Version: 1, Phase: phase, Under: "data/1", Sealed: []byte("sealed")})
	}
	key("gossip/1", model.KeyActive)
	key("gossip/2", model.KeyIncoming)
	problem := func() string {
		raw, _, err := r.cli().Do(t.Context(), http.MethodGet, "/v1/status", nil, nil)
		var status api.Status
		if err == nil {
			err = json.Unmarshal(raw, &status)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range status.Problems {
			if row.Code == api.ProblemGossipRotation {
				return row.Message
			}
		}
		return ""
	}
	if got := problem(); got != "" {
		t.Errorf("at once there is a problem: %s", got)
	}
	r.born = r.born.Add(-11 * time.Minute)
	if got := problem(); !strings.HasSuffix(got, "1 servers and agents don't take the keys, such as agent:n1") {
		t.Errorf("after 11 minutes the problem is %q", got)
	}
	if got := r.servers["s1"].api.ProblemCounts()[api.ProblemGossipRotation]; got != 1 {
		t.Errorf("the leader counts %d problems", got)
	}
	r.setLeader("s2") // s1 does not know any more which servers are absent
	if got := r.servers["s1"].api.ProblemCounts()[api.ProblemGossipRotation]; got != 0 {
		t.Errorf("a server that does not lead counts %d problems", got)
	}
}
