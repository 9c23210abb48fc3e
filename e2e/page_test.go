package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/testbed/chrome"
	"github.com/outspan/outspan/internal/testbed/chrome/axe"
)

// markup is a text that a browser would run if the page took it for HTML.
const markup = `<img src=x onerror="window.hacked=1">`

// webPage is outspan ui, and a browser that shows it.
type webPage struct {
	*chrome.Page
	t       *testing.T
	ui      *procs.Process
	browser *chrome.Browser
	address string // http://127.0.0.1:PORT
	shots   string // directory for screenshots, or ""
}

// needChromium skips the test if there is no Chromium, or fails it where nothing may be skipped.
func needChromium(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(chrome.Program); err != nil {
		if os.Getenv("OUTSPAN_E2E_REQUIRED") != "" {
			t.Fatal(err)
		}
		t.Skip("it needs Chromium: bash .ci/packages")
	}
}

// startUI starts outspan ui with the certificate of a person. It returns the address of the page, and the path of the
// file that opens it.
func (c *cluster) startUI(t *testing.T, person string) (ui *procs.Process, address, file string) {
	t.Helper()
	ui = &procs.Process{Name: "ui-" + person, Command: []string{c.bin, "ui", "--no-open", "--json"},
		Env: append(c.environment(), "XDG_RUNTIME_DIR="+c.dir,
			"OUTSPAN_CLIENT_CERT="+c.path("tls", "cli-"+person+".pem"),
			"OUTSPAN_CLIENT_KEY="+c.path("tls", "cli-"+person+"-key.pem")),
		Log: c.path("ui-" + person + ".log"), Family: relatives}
	if err := ui.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ui.Kill)
	var told struct{ Address, File string }
	waitFor(t, "the address of the page", patience, func() error {
		text, err := os.ReadFile(ui.Log)
		return errors.Join(err, json.Unmarshal(text, &told))
	})
	return ui, told.Address, told.File
}

// openPage starts outspan ui, and a browser that opens its file.
func (c *cluster) openPage(t *testing.T) *webPage {
	t.Helper()
	p := &webPage{t: t, shots: os.Getenv("OUTSPAN_PAGE_SHOTS")}
	var file string
	p.ui, p.address, file = c.startUI(t, "me")
	var err error
	if p.browser, err = chrome.Start(c.path("chromium"), relatives); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.browser.Close)
	p.Page = p.tab()
	p.do(p.Look(t.Context(), 1280, 800, false))
	p.do(p.Open(t.Context(), "file://"+file))
	return p
}

func (p *webPage) tab() *chrome.Page {
	p.t.Helper()
	tab, err := p.browser.NewPage(p.t.Context())
	p.do(err)
	return tab
}

func (p *webPage) do(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// until waits until an expression is true in the page.
func (p *webPage) until(expression string) {
	p.t.Helper()
	p.do(p.Until(p.t.Context(), patience, expression))
}

// shows waits until the page shows a text.
func (p *webPage) shows(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

func (p *webPage) run(expression string) {
	p.t.Helper()
	p.do(p.Eval(p.t.Context(), expression, nil))
}

// goTo shows a screen of the page without loading the page again.
func (p *webPage) goTo(hash, text string) {
	p.t.Helper()
	p.run(fmt.Sprintf("location.hash = %q", hash))
	p.shows(text)
}

// click clicks the first button or link with this text.
func (p *webPage) click(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf(`window.target = [...document.querySelectorAll('button:not(:disabled), a')].find(
		e => e.innerText.trim() === %q)`, text))
	p.run("window.target.click()")
}

// shoot takes screenshots: light, dark, and on a phone. It lets axe-core look at each.
func (p *webPage) shoot(name string) {
	p.t.Helper()
	for suffix, look := range map[string]struct {
		width, height int
		dark          bool
	}{"light": {1280, 800, false}, "dark": {1280, 800, true}, "phone": {360, 740, false}} {
		p.do(p.Look(p.t.Context(), look.width, look.height, look.dark))
		p.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))") // until it is drawn
		if p.shots != "" {
			p.do(p.Screenshot(p.t.Context(), filepath.Join(p.shots, name+"-"+suffix+".png")))
		}
		p.look(name + "-" + suffix)
		var wide int
		p.do(p.Eval(p.t.Context(), "document.documentElement.scrollWidth", &wide))
		if wide > look.width {
			p.t.Errorf("%s is %d pixels wide in a window of %d", name, wide, look.width)
		}
	}
	p.do(p.Look(p.t.Context(), 1280, 800, false))
}

// look runs axe-core.
func (p *webPage) look(name string) {
	p.t.Helper()
	found, err := axe.Look(p.t.Context(), p.Page)
	p.do(err)
	for _, one := range found {
		p.t.Errorf("%s: axe-core says %s", name, one)
	}
}

// A person gets in by the file, sees nodes, drains and problems as they change, drains a node, and keeps the page while
// the leader is killed. The page needs nothing from elsewhere and violates no part of its policy. A text with HTML in
// it stays text. Nobody else gets in.
func TestPage(t *testing.T) {
	long(t)
	needChromium(t)
	c := startCluster(t, options{servers: 3, agents: 3})
	c.must(t, "node", "label", "n1", "rack=r1")
	c.must(t, "node", "label", "n2", "rack=r1")
	c.must(t, "node", "label", "n3", "rack="+markup)
	c.run(t, job{name: "fat", count: 3, memory: "1200MiB"})
	c.run(t, job{name: "web", count: 4})
	p := c.openPage(t)
	p.shows("3 of 3 nodes active, 7 of 7 instances ready")
	p.run("window.same = true") // gone when the page is loaded again
	p.until("location.hash === '#/fleet'")
	p.until("document.querySelectorAll('tbody tr').length === 3")
	p.shoot("fleet")
	testPageText(t, p)
	testPageRights(t, c, p)
	drain := testPageBlocker(t, c, p)
	testPageDrain(t, c, p, drain)
	if troubles := p.Troubles(); len(troubles) > 0 {
		t.Errorf("what went wrong in the page:\n%s", strings.Join(troubles, "\n"))
	}
	testPageFailover(t, c, p)
	testPageOthers(t, p)
	for _, address := range p.Requests() {
		own := strings.HasPrefix(address, p.address+"/") || strings.HasPrefix(address, "file://"+c.dir)
		if !own && address != "about:blank" {
			t.Errorf("the page asked for %s", address)
		}
	}
	testPageEnd(t, p)
	// Chromium notes each answer that is an error, and each request that was not answered.
	if troubles := p.Troubles("Failed to load resource"); len(troubles) > 0 {
		t.Errorf("what went wrong in the page:\n%s", strings.Join(troubles, "\n"))
	}
}

// A label with HTML in it is shown as it is. The keys / and Tab lead to the filter and to a node.
func testPageText(t *testing.T, p *webPage) {
	p.shows(markup)
	p.run("document.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }))")
	p.until("document.activeElement.id === 'filter'")
	p.do(p.Press(t.Context(), "n3"))
	p.until("document.querySelectorAll('tbody tr').length === 1 && location.hash === '#/fleet?q=n3'")
	for range 4 { // a state, then the first link of the table
		p.do(p.Press(t.Context(), "Tab"))
		var at string
		p.do(p.Eval(t.Context(), "document.activeElement.innerText", &at))
		if at == "n3" {
			break
		}
	}
	p.do(p.Press(t.Context(), "Enter"))
	p.until("location.hash === '#/nodes/n3'")
	p.until("document.activeElement.tagName === 'H1'")
	p.shows(markup)
	p.shows("fat/http")
	p.shows("registered")
	p.shoot("node")
	p.until("document.querySelectorAll('main img').length === 0")
	p.goTo("#/jobs", "4 of 4")
	p.shoot("jobs")
	p.goTo("#/jobs/web", "Groups")
	p.shoot("job")
	p.until("document.querySelector('main tbody a.mono') !== null")
	p.run("document.querySelector('main tbody a.mono').click()")
	p.shows("Why")
	p.shoot("instance")
	p.goTo("#/events", "instance allocated")
	p.shoot("events")
	p.goTo("#/problems", "No problems.")
	p.shoot("problems-none")
	p.goTo("#/drains", "Nobody has drained a node yet")
	p.shoot("drains-none")
}

// testPageRights opens the page of a person who may only look: it offers neither a drain nor the jobs.
func testPageRights(t *testing.T, c *cluster, p *webPage) {
	c.must(t, "tls", "cert", "create", "--dir", c.path("tls"), "--cli", "viewer")
	c.must(t, "auth", "grant", "admin", "cert:me")
	c.must(t, "auth", "grant", "viewer", "cert:viewer")
	c.must(t, "auth", "revoke", "admin", "cert:*")
	ui, _, file := c.startUI(t, "viewer")
	tab, ctx := p.tab(), t.Context()
	until := func(expression string) { p.do(tab.Until(ctx, patience, expression)) }
	p.do(tab.Open(ctx, "file://"+file))
	until("document.querySelector('.who')?.innerText === 'cert:viewer'")
	until("!document.querySelector('nav').innerText.includes('Jobs')")
	p.do(tab.Eval(ctx, "location.hash = '#/drain/n3'", nil))
	until("document.body.innerText.includes('You may not drain nodes')")
	p.do(tab.Eval(ctx, "location.hash = '#/nodes/n3'", nil))
	until("document.body.innerText.includes('outspan node status n3')")
	text, err := tab.Text(ctx)
	p.do(err)
	if strings.Contains(text, "Drain …") || strings.Contains(text, "outspan node drain") {
		t.Errorf("a viewer is offered a drain:\n%s", text)
	}
	if troubles := tab.Troubles(); len(troubles) > 0 {
		t.Errorf("what went wrong in the page of a viewer:\n%s", strings.Join(troubles, "\n"))
	}
	p.do(p.Show(ctx))
	if err := ui.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
}

// testPageBlocker drains a node by the command line. The page shows that, with what blocks it, by itself.
func testPageBlocker(t *testing.T, c *cluster, p *webPage) string {
	var reply drainReply
	c.mustJSON(t, &reply, "node", "drain", "n1", "-m", "kernel "+markup, "--detach")
	p.shows("Drain of n1")
	p.shows("replacement_unschedulable:no_capacity_memory")
	p.shows("1 drain runs")
	p.shoot("drains")
	p.goTo("#/drains/"+reply.Drain, "kernel "+markup)
	p.shows("1 still here")
	p.shoot("drain")
	p.goTo("#/problems", "drain blocked")
	p.shoot("problems")
	p.until("window.hacked === undefined")
	return reply.Drain
}

// testPageDrain starts a drain in the page: options, the forecast, the start. It pauses that drain.
func testPageDrain(t *testing.T, c *cluster, p *webPage, other string) {
	c.must(t, "drain", "cancel", other, "--uncordon")
	p.goTo("#/nodes/n2", "Drain …")
	p.click("Drain …")
	p.shows("Show the forecast")
	p.click("Show the forecast")
	p.shows("This drain can't end by itself")
	p.shoot("forecast")
	p.click("Start the drain")
	p.shows("Drain of n2")
	p.click("Pause")
	p.shows("paused")
	for _, d := range list[drainView](t, c, "/v1/drains") {
		if d.ID != other && (d.Nodes[0].Node != "n2" || d.Actor == "") {
			t.Errorf("the page started %+v", d)
		}
	}
	p.click("Resume")
	p.until("[...document.querySelectorAll('button')].some(b => b.innerText === 'Pause')")
}

// testPageFailover kills the leader. The page says what it shows meanwhile, and goes on by itself.
func testPageFailover(t *testing.T, c *cluster, p *webPage) {
	p.goTo("#/fleet", "3 nodes")
	leader := c.leader(t)
	leader.Kill()
	c.must(t, "node", "cordon", "n3")
	p.until(`[...document.querySelectorAll('tbody tr')].some(r => /n3[^]*cordoned/.test(r.innerText))`)
	p.until(`document.querySelector('.age').innerText.startsWith('live')`)
	p.shows("server " + leader.Name)
	p.shoot("leader-killed")
	p.until("window.same === true")
	var rest []*member
	for _, s := range c.servers {
		if s != leader {
			rest = append(rest, s)
		}
	}
	rest[0].Kill() // no majority is left
	p.shows("No leader: nothing is decided now.")
	p.shoot("no-leader")
	p.until(`!document.querySelector('.age').innerText.startsWith('live')`)
	rest[0].start(t)
	leader.start(t)
	p.until(`document.querySelector('.age').innerText.startsWith('live')`)
	p.until("window.same === true")
}

// testPageOthers tries to get in by a link that was used, from another page, and by another name for 127.0.0.1.
func testPageOthers(t *testing.T, p *webPage) {
	ctx := t.Context()
	secretOf := func(tab *chrome.Page) (secret string) {
		p.do(tab.Eval(ctx, "sessionStorage.getItem('outspan-page-secret') || ''", &secret))
		return secret
	}
	secret := secretOf(p.Page)
	if len(secret) != 64 {
		t.Fatalf("the secret is %q", secret)
	}
	used := p.tab()
	p.do(used.Open(ctx, p.address+"/#"+strings.Repeat("a", 64)))
	p.do(used.Until(ctx, patience, "document.body.innerText.includes('This page is closed')"))
	if s := secretOf(used); s != "" {
		t.Errorf("a link that is not good got the secret %s", s)
	}
	second := p.tab() // of the same page: it gets the secret from the first
	p.do(second.Open(ctx, p.address+"/#/problems"))
	p.do(second.Until(ctx, patience, "document.querySelector('nav')"))

	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<!doctype html><title>evil</title><link rel=icon href='data:,'>"))
	}))
	defer evil.Close()
	other := p.tab()
	p.do(other.Open(ctx, evil.URL))
	p.do(other.Until(ctx, patience, "document.title === 'evil'"))
	for _, ask := range []string{
		fmt.Sprintf(`fetch('%s/v1/nodes', { headers: { 'Outspan-Page-Secret': '%s' } })`, p.address, secret),
		fmt.Sprintf(`fetch('%s/v1/nodes')`, p.address),
		fmt.Sprintf(`fetch('%s/ui/session', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' })`,
			p.address),
	} {
		var got string
		p.do(other.Eval(ctx, ask+".then(r => r.text(), e => 'refused: ' + e)", &got))
		if !strings.HasPrefix(got, "refused: ") {
			t.Errorf("another page got from %s: %s", ask, got)
		}
	}
	// A site whose name leads to 127.0.0.1 after a while.
	rebound := p.tab()
	p.do(rebound.Open(ctx, strings.Replace(p.address, "127.0.0.1", "evil.test", 1)+"/"))
	p.do(rebound.Until(ctx, patience, "document.body.innerText.includes('this page is at')"))
}

// testPageEnd presses Ctrl-C. The command ends at once, and the page says so.
func testPageEnd(t *testing.T, p *webPage) {
	p.do(p.Show(t.Context()))
	if err := p.ui.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := p.ui.Wait(5 * time.Second); err != nil || p.ui.ExitCode() != 130 {
		t.Errorf("after Ctrl-C: %v, exit code %d\n%s", err, p.ui.ExitCode(), p.ui.LastLines(20))
	}
	p.shows("outspan ui has ended")
	p.shoot("ended")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(p.ui.Log), "outspan-ui-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	if !slices.Contains(p.Requests(), p.address+"/") {
		t.Errorf("the page's requests were not seen: %v", p.Requests())
	}
	if err := p.Eval(context.WithoutCancel(t.Context()), "1", nil); err != nil {
		t.Error(err)
	}
}
