package ui

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/internal/testbed/chrome"
	"github.com/outspan/outspan/internal/testbed/chrome/axe"
)

// screens are the screens of the page, with an address each. The tests that look at all screens open these: a new
// screen gets a line here, and what it reads an answer in world_test.go.
var screens = []struct{ name, hash string }{
	{"fleet", "#/fleet"},
	{"fleet-filtered", "#/fleet?q=rack%3Dr1&sort=-memory+allocated"},
	{"fleet-nothing", "#/fleet?q=nosuchnode"},
	{"node", "#/nodes/n2"},
	{"node-none", "#/nodes/n9999"},
	{"jobs", "#/jobs"},
	{"job", "#/jobs/web"},
	{"edit", "#/edit/web"},
	{"edit-new", "#/edit"},
	{"revert", "#/revert/web?version=2"},
	{"instance", "#/instances/" + string(instanceID(2))},
	{"logs", "#/jobs/web?logs=*"},
	{"drains", "#/drains"},
	{"drain", "#/drains/01K7QG00000000000000DRAIN1"},
	{"drain-new", "#/drain/n2"},
	{"rolls", "#/rolls"},
	{"roll", "#/rolls/" + rollID},
	{"roll-new", "#/rolls/new"},
	{"events", "#/events"},
	{"problems", "#/problems"},
	{"servers", "#/servers"},
	{"server", "#/servers/s2"},
	{"settings", "#/settings"},
	{"setting", "#/settings/offline_after"},
	{"nowhere", "#/nowhere"},
}

// worlds are what the screens show.
var worlds = map[string]func() *world{
	"empty":  func() *world { return newWorld(0, 0) },
	"small":  func() *world { return newWorld(16, 40) },
	"broken": func() *world { return newWorld(32, 60).breakSome() },
	"full":   func() *world { return newWorld(5000, 20000).breakSome() },
}

// looks are how people see the page.
var looks = map[string]struct {
	width, height int
	media         map[string]string
}{
	"light": {1280, 800, map[string]string{"prefers-color-scheme": "light"}},
	"dark":  {1280, 800, map[string]string{"prefers-color-scheme": "dark"}},
	"forced": {1280, 800, map[string]string{"forced-colors": "active", "prefers-color-scheme": "dark",
		"prefers-contrast": "more"}},
	"phone": {360, 740, map[string]string{"prefers-color-scheme": "light"}},
}

// seen has the looks in which each world is looked at when no screenshots are wanted, since each takes its time.
var seen = map[string][]string{"small": {"dark"}, "broken": {"forced", "phone"}}

// openWorld opens the page of a world in a tab of its own.
func openWorld(t *testing.T, browser *chrome.Browser, c *cluster) *tab {
	t.Helper()
	p := start(t)
	p.cfg.Forward = c.forward
	one, err := browser.NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := &tab{Page: one, t: t, served: p}
	v.do(one.Open(t.Context(), "file://"+p.File()))
	v.until("location.hash === '#/fleet' && document.querySelector('h1')")
	return v
}

// goTo opens a screen, and waits until it has what it asks for.
func (v *tab) goTo(hash string) {
	v.t.Helper()
	v.run("location.hash = " + jsonOf(hash))
	v.until("document.querySelector('main h1') && !document.body.innerText.includes('Asking the servers')")
}

// TestScreens opens every screen of several clusters, in light, in dark, in forced colours and on a phone. axe-core
// finds nothing, nothing is wider than the window, and nothing goes wrong. With OUTSPAN_PAGE_SHOTS=DIR it writes a
// screenshot of each in every look, and opens those of an empty and of a large cluster too.
func TestScreens(t *testing.T) {
	t.Parallel()
	browser, shots := startBrowser(t), os.Getenv("OUTSPAN_PAGE_SHOTS")
	for _, world := range slices.Sorted(maps.Keys(worlds)) {
		if seen[world] == nil && shots == "" {
			continue
		}
		t.Run(world, func(t *testing.T) {
			v := openWorld(t, browser, worlds[world]().serve(t))
			for _, look := range slices.Sorted(maps.Keys(looks)) {
				if shots == "" && !slices.Contains(seen[world], look) {
					continue
				}
				l := looks[look]
				v.do(v.Emulate(t.Context(), l.width, l.height, l.media))
				for _, s := range screens {
					v.goTo(s.hash)
					if s.name == "drain-new" && world != "empty" {
						v.run(button("Show the forecast") + ".click()")
						v.until("[...document.querySelectorAll('h2')].some(h => h.innerText === 'Forecast')")
					}
					v.proper(world + "-" + s.name + "-" + look)
					if shots != "" {
						v.do(v.Screenshot(t.Context(), filepath.Join(shots, world+"-"+s.name+"-"+look+".png")))
					}
				}
			}
			// A node that isn't there is an answer with an error, which Chromium notes.
			if troubles := v.Troubles("Failed to load resource"); len(troubles) > 0 {
				t.Errorf("what went wrong:\n%s", strings.Join(troubles, "\n"))
			}
		})
	}
}

// proper reports what axe-core finds, and what is wider than the window.
func (v *tab) proper(name string) {
	v.t.Helper()
	v.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))") // until it is drawn
	found, err := axe.Look(v.t.Context(), v.Page)
	v.do(err)
	for _, one := range found {
		v.t.Errorf("%s: %s", name, one)
	}
	v.fits(name)
}

// fits reports what is wider than the window.
func (v *tab) fits(name string) {
	v.t.Helper()
	var wide []string
	v.do(v.Eval(v.t.Context(), `document.documentElement.scrollWidth <= innerWidth ? [] :
		[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 &&
		!e.closest('nav, .grid, .scroll')).slice(0, 5).map(e => e.outerHTML.slice(0, 200)).concat('too wide')`, &wide))
	for _, one := range wide {
		v.t.Errorf("%s is wider than the window: %s", name, one)
	}
}

// Every screen that app.js knows is in the table above.
func TestScreensAreComplete(t *testing.T) {
	text, err := os.ReadFile("page/app.js")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`case '([a-z]+)'`).FindAllStringSubmatch(string(text), -1)
	if len(known) < 8 {
		t.Fatalf("app.js has %d screens", len(known))
	}
	for _, m := range known {
		if !slices.ContainsFunc(screens, func(s struct{ name, hash string }) bool {
			return strings.HasPrefix(s.hash+"/", "#/"+m[1]+"/") || strings.HasPrefix(s.hash, "#/"+m[1]+"?")
		}) {
			t.Errorf("no line of screens opens the screen %s of app.js", m[1])
		}
	}
}

// rowAt is an expression for the position, beginning with 1, of the grid's row that has the focus; the head is 1.
const rowAt = `Number(document.activeElement.closest('tr')?.getAttribute('aria-rowindex'))`

// TestGrid shows 100,000 rows in the grid of the page: few are in the document, and the keys lead to each.
func TestGrid(t *testing.T) {
	t.Parallel()
	v := openWorld(t, startBrowser(t), newWorld(3, 0).serve(t))
	v.do(v.Look(t.Context(), 1000, 800, false))
	v.run(`(async () => {
		const base = document.querySelector('script[type=module]').src.replace('app.js', '')
		const { html, render } = await import(base + 'lib.js'), { Grid } = await import(base + 'grid.js')
		const box = document.body.appendChild(document.createElement('div'))
		const columns = [{ head: 'name', by: r => r.name, 
			cell: r => html` + "`<a href=\"#/jobs/${r.name}\">${r.name}</a>`" + ` },
			{ head: 'size', num: true, by: r => r.size, cell: r => r.size }, { head: 'rare', rank: 3, cell: r => r.size },
			{ head: 'words', cell: r => r.words }]
		window.rows = Array.from({ length: 100000 }, (_, i) => ({ name: 'row' + i, size: i % 1000,
			words: 'some words '.repeat(i % 40) }))
		window.show = () => render(html` + "`<${Grid} caption=\"Many\" rows=${window.rows} " +
		"columns=${columns} id=${r => r.name} />`" + `, box)
		window.show()
		addEventListener('hashchange', () => window.show())
	})()`)
	v.until("document.querySelector('[aria-label=Many]').getAttribute('aria-rowcount') === '100001'")
	v.until(`(() => { // the columns that are shown fill the table, although a column is hidden at this width
		const table = document.querySelector('[aria-label=Many]'), row = table.querySelector('tbody:not(.gap) tr')
		const last = [...row.children].findLast(c => c.getClientRects().length)
		return row.children.length === 4 &&
			Math.abs(last.getBoundingClientRect().right - table.getBoundingClientRect().right) < 2 })()`)
	focus := func(want string) {
		t.Helper()
		v.until("document.activeElement.innerText.trim() === " + jsonOf(want))
		v.until(`(() => { const a = document.activeElement.getBoundingClientRect()
			const b = document.activeElement.closest('.grid').getBoundingClientRect()
			return a.top >= b.top - 1 && a.bottom <= b.bottom + 1 })()`)
	}
	press := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			v.do(v.Press(t.Context(), key))
		}
	}
	v.run("document.querySelector('[aria-label=Many] tbody a').focus()")
	focus("row0")
	press("ArrowDown", "ArrowDown")
	focus("row2")
	press("ArrowRight")
	focus("2")
	press("ArrowUp")
	focus("1")
	press("Control+End")
	v.until(rowAt + " === 100001")
	press("Home")
	focus("row99999")
	press("PageUp")
	v.until(rowAt + " < 100001 && " + rowAt + " > 99900")
	press("Control+Home")
	focus("row0")
	press("PageDown")
	v.until(rowAt + " > 2")
	press("Control+Home", "End", "Enter") // a cell without a link opens the row
	v.until("location.hash === '#/jobs/row0'")
	v.until("document.activeElement.tagName === 'H1'")
	v.run("document.querySelector('[aria-label=Many] tbody a').focus()")
	press("Control+Home", "ArrowUp", "ArrowRight")
	focus("size")
	press("Enter")
	v.until(`document.querySelector('[aria-label=Many] [aria-sort=descending]')?.innerText.includes('size')`)
	press("ArrowDown")
	focus("999")
	// The focus stays with its row when others come, and with the grid when its row goes.
	v.run("window.rows = [{ name: 'new', size: 5000, words: '' }, ...window.rows]; window.show()")
	v.until(rowAt + " === 3")
	v.run("window.rows = window.rows.filter(r => r.name !== " +
		"document.activeElement.closest('tr').innerText.split(/\\s/)[0]); window.show()")
	v.until(rowAt + " === 3")
	// Wherever one scrolls to, there are rows, and never many.
	for _, part := range []string{"0.5", "0.999", "0.1"} {
		v.run("(() => { const g = document.querySelector('[aria-label=Many]').parentElement; " +
			"g.scrollTop = g.scrollHeight * " + part + " })()")
		v.until(`(() => { const g = document.querySelector('[aria-label=Many]').parentElement.getBoundingClientRect()
			const at = document.elementFromPoint(g.left + 40, Math.min(innerHeight - 5, g.top + g.height / 2))
			return at?.closest('tr[aria-rowindex]') ||
				(scrollTo(0, document.body.scrollHeight), false) })()`)
		var n int
		v.do(v.Eval(t.Context(), "document.querySelectorAll('[aria-label=Many] tr').length", &n))
		if n > 250 {
			t.Errorf("%d rows are in the document", n)
		}
	}
	var took float64
	v.do(v.Eval(t.Context(), `(() => { const at = performance.now()
		window.rows = [...window.rows]; window.show(); return performance.now() - at })()`, &took))
	t.Logf("100,000 sorted rows are shown again within %.0f ms", took)
	if troubles := v.Troubles("Failed to load resource"); len(troubles) > 0 {
		t.Errorf("what went wrong:\n%s", strings.Join(troubles, "\n"))
	}
}
