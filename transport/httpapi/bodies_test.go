package httpapi_test

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport/httpapi"
)

// The hash of a write is by a key once the state has keys. A write is recognised also if its first hash is from before,
// or if an equal write by another key is committed between the look at the state and the commit.
func TestKeyedBodies(t *testing.T) {
	r := newRig(t)
	var key atomic.Value                // the key of new hashes
	var equal atomic.Pointer[fsm.Entry] // committed before the next write, with the hash by k1
	key.Store("k1")
	r.startWith("s1", func(c *httpapi.Config) {
		c.HashBody = func(_ *fsm.State, like string, body []byte) string {
			if like == "" {
				if e := equal.Swap(nil); e != nil {
					e.Body = "k1." + string(body)
					must(r.commit(*e))(t)
				}
				return key.Load().(string) + "." + string(body)
			}
			return like[:2] + "." + string(body)
		}
	})
	set := func(id, after string) (w api.Written, err error) {
		raw, _, err := r.cli().Do(t.Context(), http.MethodPut, "/v1/settings", values("request_id="+id),
			map[string]string{"offline_after": after})
		if err != nil {
			return w, err
		}
		err = json.Unmarshal(raw, &w)
		return w, err
	}
	replayed := func(id string) {
		t.Helper()
		if w, err := set(id, "20s"); err != nil || !w.Replayed {
			t.Errorf("%s: %+v, %v", id, w, err)
		}
		_, err := set(id, "21s")
		wantCode(t, err, model.CodeRequestConflict)
	}
	must(set("plain", "20s"))(t)
	if body := r.lastEntry().Body; len(body) != 32 {
		t.Errorf("while the state has no keys, the hash is %q", body)
	}
	r.manage()
	replayed("plain")
	must(set("keyed", "20s"))(t)
	const keyed = `k1.set-settings` + "\x00" + `{"IfIndex":"","Input":{"offline_after":"20s"}}`
	if body := r.lastEntry().Body; body != keyed {
		t.Errorf("the hash is %q", body)
	}
	key.Store("k2")
	replayed("keyed")
	first := r.lastEntry()
	first.Request = "both"
	equal.Store(&first)
	w, err := set("both", "20s")
	if err != nil || !w.Replayed {
		t.Errorf("two equal writes at once: %+v, %v", w, err)
	}
	replayed("both")
}
