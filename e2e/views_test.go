package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
)

// The types named ...View are objects of the API. They have only the fields that tests use.

type nodeView struct {
	ID           string            `json:"id"`
	Name         string            `json:"name"`
	State        string            `json:"state"`
	Intent       string            `json:"intent"`
	Health       string            `json:"health"`
	Eligible     bool              `json:"eligible"`
	Reason       string            `json:"reason"`
	Labels       map[string]string `json:"labels"`
	Address      string            `json:"address"`
	Epoch        uint64            `json:"epoch"`
	BootID       string            `json:"boot_id"`
	Instances    int               `json:"instances"`
	DrainID      string            `json:"drain_id"`
	AutoEvicting bool              `json:"auto_evicting"`
	SeenBy       string            `json:"seen_by"`
	LastSeen     *time.Time        `json:"last_seen"`
}

type groupView struct {
	Name    string `json:"name"`
	Count   int    `json:"count"`
	Ready   int    `json:"ready"`
	Placed  int    `json:"placed"`
	Pending int    `json:"pending"`
	Reason  string `json:"reason"`
}

type jobView struct {
	Name    string      `json:"name"`
	Version uint64      `json:"version"`
	Class   string      `json:"class"`
	Status  string      `json:"status"`
	Stable  uint64      `json:"stable_version"`
	Groups  []groupView `json:"groups"`
}

type instanceView struct {
	ID         string         `json:"id"`
	Job        string         `json:"job"`
	Group      string         `json:"group"`
	Slot       int            `json:"slot"`
	Node       string         `json:"node"`
	Desired    string         `json:"desired"`
	Observed   string         `json:"observed"`
	Ready      bool           `json:"ready"`
	Reason     string         `json:"reason"`
	Cause      string         `json:"cause"`
	Replaces   string         `json:"replaces"`
	ReplacedBy string         `json:"replaced_by"`
	ExitCode   *int           `json:"exit_code"`
	Restarts   int            `json:"restarts"`
	Ports      map[string]int `json:"ports"`
	Volume     string         `json:"volume"`

	Facts     api.Facts  `json:"facts"`
	StartedAt *time.Time `json:"started_at"`
	Index     uint64     `json:"index"`
}

type blockerView struct {
	Code     string `json:"code"`
	Instance string `json:"instance"`
	Volume   string `json:"volume"`
	Message  string `json:"message"`
	Unblock  string `json:"unblock"`
}

type drainNodeView struct {
	Node      string     `json:"node"`
	Phase     string     `json:"phase"`
	LastError string     `json:"last_error"`
	StartedAt *time.Time `json:"started_at"`
	Deadline  *time.Time `json:"deadline"`
	Moved     int        `json:"moved"`
	Remaining []struct {
		Instance string `json:"instance"`
		Class    string `json:"class"`
		State    string `json:"state"`
		Blocker  string `json:"blocker"`
	} `json:"remaining"`
	Blockers []blockerView `json:"blockers"`
}

type drainView struct {
	ID      string          `json:"id"`
	Phase   string          `json:"phase"`
	Actor   string          `json:"actor"`
	Message string          `json:"message"`
	Nodes   []drainNodeView `json:"nodes"`
}

type forecastView struct {
	Node     string `json:"node"`
	Instance string `json:"instance"`
	Class    string `json:"class"`
	Action   string `json:"action"`
	Target   string `json:"target"`
	Blocker  string `json:"blocker"`
}

// drainReply is the answer to the start of a drain. Result is nil unless the command waited for the drain's end.
type drainReply struct {
	Drain    string   `json:"drain"`
	Index    uint64   `json:"index"`
	Started  []string `json:"started"`
	Rejected []struct {
		Node string `json:"node"`
		Code string `json:"code"`
	} `json:"rejected"`
	Forecast []forecastView `json:"forecast"`
	Result   *drainView     `json:"result"`
}

type budgetView struct {
	Name     string `json:"name"`
	MinReady int    `json:"min_ready"`
	Ready    int    `json:"ready"`
	Allowed  int    `json:"allowed"`
	Rate     *struct {
		Max         int        `json:"max"`
		Used        int        `json:"used"`
		NextAllowed *time.Time `json:"next_allowed"`
	} `json:"rate"`
}

type memberView struct {
	Name     string `json:"name"`
	ID       string `json:"id"`
	Leader   bool   `json:"leader"`
	Voter    bool   `json:"voter"`
	State    string `json:"state"`
	IndexLag uint64 `json:"index_lag"`
}

type statusView struct {
	Leader string         `json:"leader"`
	Nodes  map[string]int `json:"nodes"`
	Jobs   map[string]int `json:"jobs"`
	Hold   struct {
		Active bool   `json:"active"`
		Reason string `json:"reason"`
	} `json:"hold"`
	Index uint64 `json:"index"`
}

type eventView struct {
	ID      string            `json:"id"`
	Type    string            `json:"type"`
	Subject string            `json:"subject"`
	Time    time.Time         `json:"time"`
	Index   uint64            `json:"index"`
	Cause   string            `json:"cause"`
	Actor   string            `json:"actor"`
	Data    map[string]string `json:"data"`
}

// failure is the error that a failed command prints with --json.
type failure struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Hint      string `json:"hint"`
	Retryable bool   `json:"retryable"`
}

func (r result) failure(t testing.TB) failure {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	var f failure
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &f); err != nil {
		t.Fatalf("the error is not JSON: %v: %v", err, r)
	}
	return f
}

// list returns the items of the list at a path of the API.
func list[V any](t testing.TB, c *cluster, path string) []V {
	t.Helper()
	var l struct {
		Items []V `json:"items"`
	}
	c.mustGet(t, path, &l)
	return l.Items
}

func (c *cluster) nodes(t testing.TB) []nodeView {
	t.Helper()
	return list[nodeView](t, c, "/v1/nodes")
}

func (c *cluster) node(t testing.TB, m *member) nodeView {
	t.Helper()
	for _, n := range c.nodes(t) {
		if n.Name == m.Name {
			return n
		}
	}
	t.Fatalf("there is no node %s", m.Name)
	return nodeView{}
}

// living returns the instances of a job that are not terminal. The API lists only these by default.
func (c *cluster) living(t testing.TB, job string) []instanceView {
	t.Helper()
	return list[instanceView](t, c, "/v1/instances?job="+job)
}

func (c *cluster) instance(t testing.TB, id string) instanceView {
	t.Helper()
	var i instanceView
	c.mustGet(t, "/v1/instances/"+id, &i)
	return i
}

func (c *cluster) status(t testing.TB) statusView {
	t.Helper()
	var s statusView
	c.mustGet(t, "/v1/status", &s)
	return s
}

func (c *cluster) drain(t testing.TB, id string) drainView {
	t.Helper()
	var d drainView
	c.mustGet(t, "/v1/drains/"+id, &d)
	return d
}

// events returns all events that the cluster still has, the oldest first. It asks the leader, because the leader has
// applied every acknowledged write.
func (c *cluster) events(t testing.TB) []eventView {
	t.Helper()
	var all []eventView
	waitFor(t, "the list of events", patience, func() error {
		a, err := c.leader(t).
			request(http.MethodGet, "/v1/events?after=0&follow=false", nil, http.Header{"Accept": {"application/x-ndjson"}})
		if err != nil {
			return err
		}
		if a.status != http.StatusOK {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		all = all[:0]
		for line := range strings.Lines(string(a.body)) {
			var e eventView
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return fmt.Errorf("%w in %s", err, line)
			}
			all = append(all, e)
		}
		return nil
	})
	return all
}

// leader waits until a server leads, and returns it.
func (c *cluster) leader(t testing.TB) *member {
	t.Helper()
	var found *member
	waitFor(t, "a leader", patience, func() error {
		for _, s := range c.servers {
			if s.Running() && s.get("/readyz?leader=1", nil) == nil {
				found = s
				return nil
			}
		}
		return errors.New("no server says that it leads")
	})
	return found
}

// waitEligible waits until the nodes of the given agents accept new instances.
func (c *cluster) waitEligible(t testing.TB, agents ...*member) {
	t.Helper()
	waitFor(t, fmt.Sprintf("eligibility of %v", names(agents)), patience, func() error {
		var l struct{ Items []nodeView }
		if err := c.get("/v1/nodes", &l); err != nil {
			return err
		}
		for _, m := range agents {
			i := slices.IndexFunc(l.Items, func(n nodeView) bool { return n.Name == m.Name })
			if i < 0 || !l.Items[i].Eligible {
				return fmt.Errorf("%s is not: %+v", m.Name, l.Items)
			}
		}
		return nil
	})
}

// waitReady waits until a job has exactly count instances, all of them wanted and ready. It ignores lost instances.
func (c *cluster) waitReady(t testing.TB, job string, count int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("readiness of all %d instances of %s", count, job), patience, func() error {
		var l struct{ Items []instanceView }
		if err := c.get("/v1/instances?job="+job, &l); err != nil {
			return err
		}
		l.Items = slices.DeleteFunc(l.Items, func(i instanceView) bool { return i.Observed == "lost" })
		ready := 0
		for _, i := range l.Items {
			if i.Ready && i.Desired == "running" {
				ready++
			}
		}
		if ready != count || len(l.Items) != count {
			return fmt.Errorf("%d of %d are ready: %+v", ready, len(l.Items), l.Items)
		}
		return nil
	})
}
