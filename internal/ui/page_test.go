package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/draw"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/testbed/chrome"
	"github.com/outspan/outspan/model"
)

// cluster answers the page as servers would, from tables by path, and counts what it was asked.
type cluster struct {
	mu      sync.Mutex
	answers map[string]string
	errors  map[string]error // before the answers, by path; PATH?stale for reads of what one server knows
	asked   map[string]int
	bodies  []string // of POST, with the path
	dry     any      // what a dry run of a drain answers; nil: answers has it
	started any      // what the start of a drain answers
	quiet   bool     // reads that wait for a change wait
}

const (
	nodeN1 = `{"id":"1","name":"n1","state":"active","intent":"active","reason":"","address":"a","version":"1","labels":{},
		"attributes":{},"warnings":[],"troubles":[],"port_problems":[],"unknown":[],"instances":0,"drain_phase":"",
		"capacity":{"cpu":1000,"memory_bytes":1024},"reserved":{"cpu":0,"memory_bytes":0},
		"allocated":{"cpu":0,"memory_bytes":0}}`
	drainD1 = `{"id":"d1","phase":"draining","paused":true,"actor":"me","message":"","created_at":"2026-01-01T00:00:00Z",
		"options":{"deadline":"1h","force":true},"rejected":[],"nodes":[{"node":"n1","node_id":"1","phase":"draining",
		"turn":true,"last_error":"","moved":0,"stopped":0,"acked":0,"remaining":[],"blockers":[]}]}`
	whoami = `{"subject":"me","verbs":["node.read","node.drain","server.read"]}`
)

func newCluster() *cluster {
	return &cluster{asked: map[string]int{}, errors: map[string]error{}, answers: map[string]string{
		"/v1/auth/whoami": whoami, "/v1/auth/can-i": `{"allowed":true}`,
		"/v1/status": `{"cluster":"c","index":1,"leader":"s1","problems":[],"nodes":{"active":1,"total":1},` +
			`"instances":{},"drains":[],"hold":{"active":false}}`,
		"/v1/nodes": `{"items":[` + nodeN1 + `]}`, "/v1/nodes/n1": nodeN1, "/v1/drains/d1": drainD1,
		"/v1/instances": `{"items":[]}`, "/v1/why": `{}`, "/v1/drains/d1/resume": `{}`,
		"/v1/drains": `{"drain":"","started":["n1"],"rejected":[],"forecast":[]}`,
	}}
}

func (c *cluster) forward(ctx context.Context, r client.ForwardedRequest) (*http.Response, error) {
	if c.quiet && r.Query.Has("wait") {
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[r.Path]++; r.Method == http.MethodPost {
		c.bodies = append(c.bodies, r.Path+" "+string(r.Body))
	}
	asked := r.Path
	if how := r.Query.Get("consistency"); how != "" {
		asked += "?" + how
	}
	if err := c.errors[asked]; err != nil {
		return nil, err
	}
	if path, err := url.PathUnescape(r.Path); err == nil {
		r.Path = path
	}
	text, ok := c.answers[r.Path+"?"+queried(r.Query)]
	if !ok {
		text, ok = c.answers[r.Path]
	}
	if c.dry != nil && r.Method == http.MethodPost && r.Path == "/v1/drains" {
		text, ok = jsonOf(map[bool]any{true: c.dry, false: c.started}[r.Query.Get("dry_run") == "true"]), true
	}
	if !ok {
		return nil, model.Refuse(model.CodeNotFound, "there is no %s", r.Path)
	}
	header := http.Header{api.HeaderStale: {"40000"}, "Content-Type": {"application/json"}}
	if c.quiet {
		header.Set(api.HeaderIndex, "4711")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text)), Header: header}, nil
}

// queried is the part of a query that says what is asked for.
func queried(query url.Values) string {
	kept := url.Values{}
	for key, values := range query {
		if !slices.Contains([]string{"index", "wait", "consistency", "next", "request_id"}, key) {
			kept[key] = values
		}
	}
	return kept.Encode()
}

// set makes the cluster answer these. A list of events has a line for each.
func (c *cluster) set(answers map[string]any) {
	c.change(func() {
		for path, v := range answers {
			lines, isList := v.([]any)
			if !isList {
				c.answers[path] = jsonOf(v)
				continue
			}
			c.answers[path] = ""
			for _, line := range lines {
				c.answers[path] += jsonOf(line) + "\n"
			}
		}
	})
}

func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// count returns how often a path was asked for.
func (c *cluster) count(path string) (n int) {
	c.change(func() { n = c.asked[path] })
	return n
}

// TestPage shows the page in a browser: what it does with answers that a real cluster seldom gives.
func TestPage(t *testing.T) {
	t.Parallel()
	inBrowser(t, map[string]func(*testing.T, *cluster, *tab){
		"refused": testRefused, "one 401": testOne401, "signed out": testSignedOut, "filter": testFilter,
		"old": testOld, "forecast": testForecast, "resume": testResume, "gone": testGone, "cut off": testCutOff,
		"no status": testNoStatus,
	})
}

// startBrowser starts a Chromium, which ends with the test. The test skips itself under the race detector, which sees
// nothing of scripts, and if there is no Chromium.
func startBrowser(t *testing.T) *chrome.Browser {
	t.Helper()
	if draw.Race {
		t.Skip("the race detector is on: it sees nothing of scripts")
	}
	if _, err := os.Stat(chrome.Program); err != nil {
		if os.Getenv("OUTSPAN_E2E_REQUIRED") != "" {
			t.Fatal("it needs Chromium: bash .ci/packages")
		}
		t.Skip("it needs Chromium: bash .ci/packages")
	}
	browser, err := chrome.Start(filepath.Join(t.TempDir(), "chromium"), &procs.Family{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(browser.Close)
	return browser
}

// verbsIn has what the viewer may do in a test, unless it is that of whoami.
var verbsIn = map[string][]string{"no status": {"node.read"}, "hold": {"server.read", "node.read", "cluster.pause"},
	"board": mayRoll, "roll": mayRoll, "roll refused": mayRoll, "roll late": mayRoll}

var mayRoll = []string{"server.read", "node.read", "node.drain", "node.cordon"}

// inBrowser runs each test with a page of its own and a cluster of its own, in one browser.
func inBrowser(t *testing.T, tests map[string]func(*testing.T, *cluster, *tab)) {
	t.Helper()
	browser := startBrowser(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, p := newCluster(), start(t)
			if verbs, ok := verbsIn[name]; ok {
				c.answers["/v1/auth/whoami"] = fmt.Sprintf(`{"subject":"me","verbs":%s}`, jsonOf(verbs))
			}
			p.cfg.Forward = c.forward
			one, err := browser.NewPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			v := &tab{Page: one, t: t, served: p}
			v.do(one.Open(t.Context(), "file://"+p.File()))
			v.until("location.hash === '#/fleet'")
			if name != "no status" {
				v.shows("1 of 1 node active")
			}
			v.do(one.Eval(t.Context(), "window.same = true", nil))
			test(t, c, v)
		})
	}
}

type tab struct {
	*chrome.Page
	t      *testing.T
	served *page
}

func (v *tab) do(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

func (v *tab) until(expression string) {
	v.t.Helper()
	v.do(v.Until(v.t.Context(), 30*time.Second, expression)) // generous
}

func (v *tab) shows(text string) {
	v.t.Helper()
	quoted, _ := json.Marshal(text)
	v.until("document.body.innerText.includes(" + string(quoted) + ")")
}

func (v *tab) run(expression string) {
	v.t.Helper()
	v.do(v.Eval(v.t.Context(), expression, nil))
}

// fill puts a text into the last field that a selector finds.
func (v *tab) fill(selector, text string) {
	v.t.Helper()
	v.run(`(() => { const f = [...document.querySelectorAll('` + selector + `')].at(-1); f.value = '` + text +
		`'; f.dispatchEvent(new Event('input', { bubbles: true })) })()`)
}

// button is an expression for the button with a text.
func button(text string) string {
	return `[...document.querySelectorAll('button')].find(b => b.innerText === '` + text + `')`
}

// What stays refused is not asked for each second.
func testRefused(t *testing.T, c *cluster, v *tab) {
	v.run("location.hash = '#/nodes/none'")
	v.shows("there is no /v1/nodes/none")
	before := c.count("/v1/status")
	time.Sleep(3 * time.Second)
	if n := c.count("/v1/nodes/none"); n != 1 || c.count("/v1/status") == before {
		t.Errorf("asked %d times in 3 s", n)
	}
}

var notKnown = model.Refuse(model.CodeUnauthenticated, "the sign-in is over").WithHint("use: outspan login --again")

// One 401, and 401 for anything but who one is, does not end the page.
func testOne401(_ *testing.T, c *cluster, v *tab) {
	c.change(func() { c.errors["/v1/nodes"] = notKnown })
	v.shows("the sign-in is over")
	c.change(func() { delete(c.errors, "/v1/nodes") })
	v.until("!document.body.innerText.includes('the sign-in is over')")
	v.until("window.same && document.querySelector('nav')")
}

// The page ends once the servers did not know the caller several times, with the way out that they gave.
func testSignedOut(t *testing.T, c *cluster, v *tab) {
	before := c.count("/v1/auth/whoami")
	c.change(func() { c.errors["/v1/auth/whoami"] = notKnown })
	v.shows("Your sign-in has ended")
	v.shows("outspan login --again")
	if n := c.count("/v1/auth/whoami") - before; n < 3 {
		t.Errorf("after %d times", n)
	}
}

// The filter does not load the page again when the address has no screen.
func testFilter(_ *testing.T, _ *cluster, v *tab) {
	v.run("location.hash = ''")
	v.until("location.hash === '' && document.getElementById('filter')")
	v.fill("#filter", "n1")
	v.until("location.hash === '#/fleet?q=n1' && window.same")
}

// What one server knows says so, with its age, and names a missing leader only if that is the cause.
func testOld(_ *testing.T, c *cluster, v *tab) {
	c.change(func() { c.errors["/v1/nodes"] = model.Refuse("timeout", "the server took too long") })
	v.shows("what one server knows: the server took too long")
	v.until("document.querySelector('.age').innerText.startsWith('as of')") // the status is live
	v.shows("1 of 1 node active")
	c.change(func() { c.errors["/v1/status"] = model.Refuse("timeout", "the server took too long") })
	v.shows("No answer from the leader: the server took too long.")
	c.change(func() {
		c.errors["/v1/status?stale"] = model.Refuse(model.CodeNoLeader, "s1 has heard of no leader for 12s")
	})
	v.shows("No leader: nothing is decided now. What is shown does not change: s1 has heard of no leader for 12s.")
	c.change(func() { delete(c.errors, "/v1/status?stale") })
	v.shows("No answer from the leader: the server took too long.")
	c.change(func() { c.errors["/v1/status"] = model.Refuse(model.CodeNoLeader, "nobody leads") })
	v.shows("No leader: nothing is decided now.")
	c.change(func() { clear(c.errors) })
	v.until("document.querySelector('.age').innerText.startsWith('live')")
}

// A forecast counts only for the options and the state of the node that it was made for.
func testForecast(t *testing.T, c *cluster, v *tab) {
	v.run("location.hash = '#/drain/n1'")
	v.shows("Show the forecast")
	held, release := make(chan struct{}), make(chan struct{})
	v.served.cfg.Forward = func(ctx context.Context, r client.ForwardedRequest) (*http.Response, error) {
		if r.Method == http.MethodPost && r.Query.Get("dry_run") == "true" {
			held <- struct{}{}
			<-release
		}
		return c.forward(ctx, r)
	}
	show := func() { v.run(button("Show the forecast") + ".click()"); <-held }
	show()
	v.run("document.querySelectorAll('input[type=checkbox]')[0].click()") // while the servers compute
	release <- struct{}{}
	v.shows("The forecast was for other options")
	v.until("!" + button("Start the drain"))
	show()
	release <- struct{}{}
	v.until(button("Start the drain"))
	c.change(func() { c.answers["/v1/nodes/n1"] = strings.Replace(nodeN1, "active", "degraded", 1) })
	v.until("!" + button("Start the drain"))
	show()
	release <- struct{}{}
	v.until(button("Start the drain"))
	v.run(button("Start the drain") + ".click()")
	for range 500 {
		var all []string
		c.change(func() { all = c.bodies })
		if len(all) == 4 {
			if last := all[3]; last != `/v1/drains {"nodes":["n1"],"ignore_system":true}` {
				t.Errorf("started %s", last)
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("nothing was started")
}

// A drain that may lose work is resumed only after the node's name was typed. Its options are shown.
func testResume(_ *testing.T, _ *cluster, v *tab) {
	v.run("location.hash = '#/drains/d1'")
	v.shows("stops what its role says never to stop")
	v.until(button("Resume") + "?.disabled")
	v.fill(".actions input", "n1")
	v.until("!" + button("Resume") + ".disabled")
}

// Once outspan ui did not answer twice, the page asks nothing more of whoever has the port then.
func testGone(t *testing.T, _ *cluster, v *tab) {
	v.do(v.Show(t.Context()))
	_ = v.served.stop()
	v.shows("outspan ui has ended")
	v.run("window.fetches = 0; const real = fetch; window.fetch = (...a) => { window.fetches++; return real(...a) }")
	time.Sleep(3 * time.Second)
	v.until("window.fetches === 0")
}

// An answer that is no whole JSON says so, and the page goes on.
func testCutOff(_ *testing.T, c *cluster, v *tab) {
	c.change(func() { c.answers["/v1/nodes"] = `{"items":[` })
	v.shows("the answer was cut off")
	c.change(func() { c.answers["/v1/nodes"] = `{"items":[` + nodeN1 + `]}` })
	v.until("!document.body.innerText.includes('cut off') && window.same")
}

// The status is not asked for without the right, and the head says so.
func testNoStatus(t *testing.T, c *cluster, v *tab) {
	v.shows("You may not see the health of this cluster")
	v.run("location.hash = '#/edit'") // nor run jobs
	v.shows("You may not run jobs. Ask an administrator")
	v.shows("outspan auth can-i job.submit --as me")
	v.run("location.hash = '#/fleet'")
	v.shows("n1")
	if n := c.count("/v1/status"); n > 0 {
		t.Errorf("the status was asked for %d times", n)
	}
}
