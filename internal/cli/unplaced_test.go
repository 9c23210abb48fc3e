package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// proves that what is not placed comes with a hint that fits the reason, and with why only for a job that is there.
func TestHintOfUnplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.hcl")
	const job = "job \"web\" {\n  group \"http\" {\n    exec {\n      command = \"/bin/true\"\n    }\n  }\n}\n"
	if err := os.WriteFile(file, []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	const room, why = "they are placed when there is room", "see: outspan why web"
	for _, c := range []struct {
		code   string
		index  int
		has    []string
		hasNot []string
	}{
		{"no_capacity_memory", 0, []string{room}, []string{why}},
		{"no_capacity_memory", 7, []string{room, why}, nil},
		{"constraint_unmatched", 7, []string{"change the constraint", "outspan node label", why}, []string{room}},
		{"no_nodes_active", 0, []string{"outspan node ls"}, []string{room, why}},
	} {
		address := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"code":"not_found","message":"there is no job web"}`)
				return
			}
			fmt.Fprintf(w, `{"job":"web","index":%d,"changes":true,"groups":[{"group":"web/http","created":1,"unschedulable":1,"code":%q,"message":"no"}]}`, c.index, c.code)
		})
		_, errs, code := runHere(t, address, "job", "plan", file)
		if code != int(exitNotAllPlaced) {
			t.Errorf("%s: exit code %d: %s", c.code, code, errs)
		}
		for _, text := range c.has {
			if !strings.Contains(errs, text) {
				t.Errorf("%s at %d: no %q in\n%s", c.code, c.index, text, errs)
			}
		}
		for _, text := range c.hasNot {
			if strings.Contains(errs, text) {
				t.Errorf("%s at %d: %q in\n%s", c.code, c.index, text, errs)
			}
		}
	}
}

// proves that a scale below min_ready says that the budget then keeps all instances, as job plan does.
func TestScaleBelowMinReady(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		const group = `{"name":"http","count":40,"exec":{"command":"/bin/true"},"budget":{"min_ready":"36"}}`
		fmt.Fprintf(w, `{"index":7,"changed":true,"job":{"name":"web"},"name":"web","items":[],"status":"running","spec":{"name":"web","groups":[%s]}}`, group)
	})
	for count, told := range map[string]bool{"30": true, "36": false, "0": false} {
		_, errs, code := runHere(t, address, "job", "scale", "web", count, "--dry-run")
		if code != 0 || strings.Contains(errs, "min_ready is more than the count, so it keeps all of them") != told {
			t.Errorf("scale to %s: exit code %d: %s", count, code, errs)
		}
	}
}
