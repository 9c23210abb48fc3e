package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

func holding(more string) string {
	return `{"cluster":"c","index":1,"leader":"s1","time":"` + time.Now().UTC().Format(time.RFC3339) + `","problems":[` +
		`{"code":"hold","subject":"cluster","message":"HOLD: too many","next":"outspan settings resume hold"},` +
		`{"code":"node_degraded","subject":"node/n9","message":"its disk is full","next":"look"}],` +
		`"nodes":{"active":1,"total":5},"instances":{},"drains":[],"hold":{"active":true,"since":"` +
		ago(190).Format(time.RFC3339) + `","reason":"3 of 5 nodes are silent"` + more + `}}`
}

// A HOLD is in the sentence of health, and Problems say what it means and how it ends.
func testHold(t *testing.T, c *cluster, v *tab) {
	out := `,"calm_since":null,"calm_nodes":1,"nodes":[{"node":"n2","node_id":"2","why":"silent","last_seen":"` +
		ago(200).Format(time.RFC3339) + `"},{"node":"n3","node_id":"3","why":"sick","last_seen":null}]`
	c.change(func() {
		c.answers["/v1/status"] = holding(out)
		c.answers["/v1/settings/resume"] = `{}`
	})
	v.run("location.hash = '#/problems'")
	v.shows("HOLD since 3 min: 2 nodes out (n2, n3), so nothing is evicted from them.")
	v.shows("1 more problem.")
	for _, text := range []string{"3 of 5 nodes are silent", "no heartbeats", "its own agent reports troubles",
		"No node is written offline", "Drains, rollouts, scaling",
		"As last heard, 1 of 5 nodes active", "for 60 s at most 1 node has been out; 2 nodes are out now.",
		"outspan settings resume hold"} {
		v.shows(text)
	}
	v.until(button("End the HOLD …"))
	v.shoot("hold")
	v.click("End the HOLD …")
	v.shows("these run twice until it is back")
	v.shoot("hold-end")
	v.until(button("End the HOLD") + ".disabled")
	v.fill(".confirm input", "c")
	v.click("End the HOLD")
	if got := c.posted(t, 1); got != `/v1/settings/resume {"what":"hold"}` {
		t.Errorf("posted %q", got)
	}
	c.change(func() {
		c.answers["/v1/status"] = holding(`,"calm_since":"` + ago(20).Format(time.RFC3339) + `","nodes":[]`)
	})
	v.shows("by itself in about")
	v.shows("No node is known to be out.")
	c.change(func() { // under a new leader, which has heard one node and not yet the other
		c.answers["/v1/status"] = holding(`,"calm_since":null,"calm_nodes":1,"domain":"rack-a","nodes":[{"node":"n1",` +
			`"node_id":"1","why":"silent"},{"node":"n2","node_id":"2","why":"silent"},{"node":"n4","node_id":"4",` +
			`"why":"offline"},{"node":"n3","node_id":"3","why":"unheard"}]`)
	})
	v.shows("3 nodes out (n1, n2, n4)")
	v.shows("no server has heard it yet")
	v.shows("for 60 s at most 1 node has been out, and no whole failure domain beside others; 3 nodes are out now, " +
		"among them all of rack-a, and 1 node is not heard yet.")
}

// Servers that don't name the nodes of a HOLD are understood. Without the right, the button is not offered.
func testHoldOnly(_ *testing.T, c *cluster, v *tab) {
	c.change(func() { c.answers["/v1/status"] = holding("") })
	v.run("location.hash = '#/problems'")
	v.shows("too many nodes were out at once, so nothing is evicted from them")
	v.shows("outspan settings resume hold")
	v.until("!" + button("End the HOLD …"))
}

// rolling are the drains of a roll of n1 to n5, with the nodes in each column of the board.
func rolling() (drains, nodes []map[string]any) {
	roll := map[string]any{"id": "R1", "nodes": []string{"n1", "n2", "n3", "n4", "n5"}, "max_parallel_nodes": 2}
	for i := 1; i <= 5; i++ {
		name, id := fmt.Sprint("n", i), fmt.Sprint(i)
		var node map[string]any
		if err := json.Unmarshal([]byte(nodeN1), &node); err != nil {
			panic(err)
		}
		node["id"], node["name"], node["health"], node["boot_id"], node["eligible"] = id, name, "online", "b", true
		phase := []model.DrainPhase{"drained", "drained", "draining", "failed", ""}[i-1]
		if i == 1 { // rebooted and taken back
			node["boot_id"] = "c"
		}
		if i > 1 && i < 5 {
			node["intent"], node["state"], node["eligible"] = "draining", "draining", false
			node["drain_id"] = "R1." + id + ".1"
		}
		if i < 5 {
			part := api.DrainNode{Node: name, NodeID: model.NodeID(id), Phase: phase, Turn: true, BootID: "b", Moved: 2,
				StartedAt: ago(100), Remaining: []api.DrainRemaining{}, Blockers: []api.DrainBlocker{}}
			if phase != model.PhaseDraining {
				part.EndedAt = ago(float64(90 - 10*i))
			}
			if phase == model.PhaseFailed {
				part.LastError = "the deadline passed: no room for web/http"
			}
			d := api.Drain{ID: model.DrainID("R1." + id + ".1"), Phase: phase, Actor: "cert:me", Message: "kernel",
				CreatedAt: *ago(100), Index: uint64(i), Rejected: []model.DrainRefusal{}, Nodes: []api.DrainNode{part},
				Options: model.DrainOptions{Deadline: model.Hour}}
			var row map[string]any
			_ = json.Unmarshal([]byte(jsonOf(d)), &row)
			row["options"].(map[string]any)["roll"] = roll
			drains = append(drains, row)
		}
		nodes = append(nodes, node)
	}
	return drains, nodes
}

// A roll is a board: each node stands in the column of what happens to it.
func testBoard(_ *testing.T, c *cluster, v *tab) {
	drains, nodes := rolling()
	strange, _ := rolling() // a drain by somebody else, which must not change the plan of the roll
	strange[0]["id"], strange[0]["actor"], strange[0]["index"] = "d9", "cert:mallory", 9
	strange[0]["options"].(map[string]any)["roll"] = map[string]any{"id": "R1", "nodes": []string{"n9"}, "exec": "evil"}
	drains = append(drains, strange[0])
	c.show("/v1/drains", map[string]any{"items": drains})
	c.show("/v1/nodes", map[string]any{"items": nodes})
	v.run("location.hash = '#/rolls'")
	v.shows("1 of 5 back")
	v.shoot("rolls")
	v.run("location.hash = '#/rolls/R1'")
	for column, text := range map[string]string{"Waiting": "n5", "Draining": "n3", "Away": "reboot it now", "Back": "n1",
		"Failed": "no room for web/http"} {
		v.until(fmt.Sprintf(`document.querySelector('.board [aria-label=%s]')?.innerText.includes('%s')`, column, text))
	}
	v.shows("outspan node roll --resume R1")
	v.shows("Drain d9 of cert:mallory has this id, but other nodes: it is ignored.")
	v.until(button("Carry on in this page"))
	v.until(button("Pause"))
	v.shoot("board")
	for _, d := range drains {
		if d["phase"] == model.PhaseDraining || d["phase"] == "draining" {
			c.change(func() { c.answers[fmt.Sprint("/v1/drains/", d["id"], "/pause")] = `{}` })
			d["paused"] = true
		}
	}
	v.click("Pause")
	v.shows("Paused. The deadlines go on.")
	c.show("/v1/drains", map[string]any{"items": drains})
	v.until(button("Resume") + " && " + button("Undo"))
	v.apart(".heading", "main", ".board")
	v.click("Cancel the roll …")
	v.shows("Cancels the drain of n3")
	const title = "document.querySelector('h1').innerText"
	v.until(title + ".includes('stopped by a failure')")
	drains[3]["phase"] = "canceled"
	drains[3]["nodes"].([]any)[0].(map[string]any)["phase"] = "canceled"
	c.show("/v1/drains", map[string]any{"items": drains})
	v.until(title + ".includes('canceled')")
}

// clusterOfRoll is what a roll changes: it drains nodes at once, and takes them back.
type clusterOfRoll struct {
	*cluster
	drains, nodes []map[string]any
	order         []string         // what was asked of the servers
	refusal       error            // of the next drain
	refused       map[string]error // what the request with each id gets again
}

func (c *clusterOfRoll) forward(ctx context.Context, r client.ForwardedRequest) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := func(v any) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(jsonOf(v)))}, nil
	}
	c.asked[r.Path]++
	switch {
	case r.Path == "/v1/drains" && r.Method == http.MethodPost:
		var body struct {
			Nodes        []string
			ID, Deadline string
			Roll         any
		}
		_ = json.Unmarshal(r.Body, &body)
		reply := map[string]any{"drain": "", "started": body.Nodes, "rejected": []any{}, "forecast": []any{}}
		if r.Query.Get("dry_run") == "true" {
			return answer(reply)
		}
		request := r.Query.Get("request_id")
		if c.refusal != nil {
			c.refused, c.refusal = map[string]error{request: c.refusal}, nil
		}
		if err := c.refused[request]; err != nil {
			return nil, err
		}
		c.order = append(c.order, strings.TrimSpace("drain "+body.ID+" "+body.Deadline))
		all, nodes := rolling()
		d := all[0]
		d["id"], d["created_at"], d["index"] = body.ID, time.Now().UTC(), len(c.drains)+1
		d["options"].(map[string]any)["roll"] = body.Roll
		d["nodes"].([]any)[0].(map[string]any)["node"] = body.Nodes[0]
		for i := range nodes {
			if c.nodes[i]["name"] == body.Nodes[0] {
				c.nodes[i]["intent"], c.nodes[i]["eligible"], c.nodes[i]["drain_id"] = "draining", false, body.ID
			}
		}
		c.drains = append(c.drains, d)
		reply["drain"] = body.ID
		return answer(reply)
	case strings.HasSuffix(r.Path, "/uncordon"):
		c.order = append(c.order, "uncordon "+strings.Split(r.Path, "/")[3])
		for _, n := range c.nodes {
			if n["name"] == strings.Split(r.Path, "/")[3] {
				n["intent"], n["eligible"] = "active", true
			}
		}
		return answer(map[string]any{})
	case r.Path == "/v1/drains":
		return answer(map[string]any{"items": c.drains})
	case r.Path == "/v1/nodes":
		return answer(map[string]any{"items": c.nodes})
	}
	text, ok := c.answers[r.Path]
	if !ok {
		return nil, model.Refuse(model.CodeNotFound, "there is no %s", r.Path)
	}
	return answer(json.RawMessage(text))
}

// does waits until the page has asked this of the servers.
func (c *clusterOfRoll) does(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		found := false
		c.change(func() { found = slices.Contains(c.order, want) })
		if found {
			return
		}
	}
	t.Fatalf("the page did not %s", want)
}

// A roll begins after its dry run. The page drains a node, waits for its reboot, takes it back, and does the next.
func testRoll(t *testing.T, c *cluster, v *tab) {
	_, nodes := rolling()
	for _, n := range nodes {
		n["intent"], n["eligible"], n["boot_id"], n["labels"] = "active", true, "b", map[string]string{"rack": "r2"}
	}
	nodes[0]["labels"], nodes[3]["labels"] = map[string]string{"rack": "r1"}, map[string]string{"rack": "r1"}
	w := &clusterOfRoll{cluster: c, drains: []map[string]any{}, nodes: nodes}
	c.change(func() { c.answers["/v1/jobs"] = `{"items":[]}` })
	v.served.cfg.Forward = w.forward
	v.run("location.hash = '#/rolls/new'")
	v.shows("Dry run")
	v.until("!" + button("Start the roll"))
	v.fill("form input", "new kernel")
	v.run(`(() => { const f = document.querySelector('form input'); f.value = 'rack=r1'
		f.dispatchEvent(new Event('input', { bubbles: true })) })()`)
	v.shows("2 nodes: n1, n4")
	v.click("Dry run")
	v.shows("Each of 2 nodes could be drained now.")
	v.shoot("roll-new")
	v.click("Start the roll")
	v.shows("This page carries the roll out")
	for _, name := range []string{"n1", "n4"} {
		v.until(fmt.Sprintf(`document.querySelector('.board [aria-label=Away]')?.innerText.includes('%s')`, name))
		c.change(func() {
			if name == "n4" { // somebody else drains n1, which is done: that is left alone
				nodes[0]["intent"], nodes[0]["drain_id"] = "draining", "other"
			}
			for _, n := range nodes {
				if n["name"] == name {
					n["boot_id"] = "after the reboot"
				}
			}
		})
	}
	v.shows("2 of 2 back")
	v.shows("done")
	var order []string
	c.change(func() { order = slices.Clone(w.order) })
	if len(order) != 4 || !strings.HasSuffix(order[0], ".1.1") || order[1] != "uncordon n1" ||
		!strings.HasSuffix(order[2], ".2.1") || order[3] != "uncordon n4" {
		t.Errorf("the page did %q", order)
	}
}

// lastOfRoll shows a roll of which all nodes but n5 are back.
func lastOfRoll(c *cluster, v *tab) *clusterOfRoll {
	drains, nodes := rolling()
	for i, d := range drains {
		d["phase"] = "drained"
		d["nodes"].([]any)[0].(map[string]any)["phase"] = "drained"
		nodes[i]["intent"], nodes[i]["eligible"], nodes[i]["boot_id"] = "active", true, "c"
	}
	w := &clusterOfRoll{cluster: c, drains: drains, nodes: nodes}
	c.change(func() { c.answers["/v1/jobs"] = `{"items":[]}` })
	v.served.cfg.Forward = w.forward
	v.run("location.hash = '#/rolls/R1'")
	return w
}

const n5Away = `document.querySelector('.board [aria-label=Away]')?.innerText.includes('n5')`

// A node whose drain was refused is drained when the roll is carried on, with the deadline of the roll.
func testRollRefused(t *testing.T, c *cluster, v *tab) {
	w := lastOfRoll(c, v)
	c.change(func() { w.refusal = model.Refuse(model.CodeAlreadyDraining, "node n5 is already in drain d1") })
	v.click("Carry on in this page")
	v.shows("node n5 is already in drain d1")
	v.click("Carry on in this page")
	v.until(n5Away)
	c.change(func() {
		if want := []string{"drain R1.5.1 1h"}; !slices.Equal(w.order, want) {
			t.Errorf("the page did %q, want %q", w.order, want)
		}
	})
}

// The page reads once which groups a drain moved, and does not wait for them for ever.
func testRollLate(t *testing.T, c *cluster, v *tab) {
	w := lastOfRoll(c, v)
	v.click("Carry on in this page")
	v.until(n5Away)
	before := c.count("/v1/instances")
	c.change(func() {
		c.answers["/v1/instances"] = fmt.Sprintf(
			`{"items":[{"cause":"node_draining","created_at":%q,"job":"web","group":"http"}]}`,
			time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
		c.answers["/v1/jobs"] = `{"items":[{"name":"web","groups":[{"name":"http","ready":1,"count":2}]}]}`
		w.nodes[4]["boot_id"] = "after the reboot"
	})
	v.shows("n5: web/http is not whole yet")
	asked := c.count("/v1/jobs")
	for end := time.Now().Add(time.Minute); c.count("/v1/jobs") < asked+3; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the page does not look again")
		}
	}
	if n := c.count("/v1/instances") - before; n != 1 {
		t.Errorf("the page read the instances %d times, want once", n)
	}
	v.run("Date.now = (now => () => now() + 31 * 60000)(Date.now)")
	v.shows("group web/http is not whole again 30 min after node n5 came back")
}
