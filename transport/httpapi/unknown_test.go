package httpapi_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport/httpapi"
)

// The list of what a confirmation would stop names the nodes that have not reported what they run.
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

// An agent whose answer is too large counts as silent. The log of the server says why nothing of it is listed.
func TestUnknownInstancesOfATooLargeAnswer(t *testing.T) {
	r := newRig(t)
	r.world()
	r.runAgentOf("01N1", "n1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"more": "`+strings.Repeat("x", 17<<20)+`"}`)
	}))
	var text strings.Builder // the log of s2; its logger writes it under a lock
	r.startWith("s2", func(c *httpapi.Config) { c.Logger = hclog.New(&hclog.LoggerOptions{Output: &text}) })
	list, _ := get(t, r.cli("s2"), "/v1/unknown-instances")["silent_nodes"].([]any)
	if !slices.Contains(list, any("n1")) {
		t.Errorf("silent nodes: %v, want n1 among them", list)
	}
	r.servers["s2"].stop()
	if want := "the answer is larger than 16777216 bytes"; !strings.Contains(text.String(), want) {
		t.Errorf("the log is\n%swant %q in it", text.String(), want)
	}
}
