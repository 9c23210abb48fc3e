package ui

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api/frame"
	"github.com/outspan/outspan/internal/testbed/chrome"
	"github.com/outspan/outspan/model"
)

// openFleet opens the page of a synthetic fleet in a tab.
func openFleet(t *testing.T, browser *chrome.Browser, s *synthetic) *tab {
	t.Helper()
	p := start(t)
	p.cfg.Forward = s.forward
	v := newTab(t, browser, p)
	v.do(v.Open(t.Context(), "file://"+p.File()))
	v.until("location.hash.startsWith('#/fleet')")
	return v
}

func newTab(t *testing.T, browser *chrome.Browser, p *page) *tab {
	t.Helper()
	one, err := browser.NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := &tab{Page: one, t: t, served: p}
	v.do(one.Look(t.Context(), 1280, 900, false))
	return v
}

// shootMap takes a screenshot of the map, without the list below it, if OUTSPAN_PAGE_SHOTS names a directory.
func (v *tab) shootMap(name string, dark bool) {
	v.t.Helper()
	if dir := os.Getenv("OUTSPAN_PAGE_SHOTS"); dir != "" {
		v.do(v.Look(v.t.Context(), 1280, 900, dark))
		v.run("document.querySelectorAll('.scroll').forEach(e => e.hidden = true)")
		v.run("new Promise(done => setTimeout(done, 400))")
		v.do(v.Screenshot(v.t.Context(), filepath.Join(dir, name+".png")))
		v.do(v.Look(v.t.Context(), 1280, 900, false))
	}
}

// mapped waits until the map is drawn.
func (v *tab) mapped() {
	v.t.Helper()
	v.until("document.querySelector('.racks span')")
}

// text evaluates an expression to a text.
func (v *tab) text(expression string) (text string) {
	v.t.Helper()
	v.do(v.Eval(v.t.Context(), expression, &text))
	return text
}

// module is an expression for a module of the page.
func module(name string) string {
	return "(await import(document.querySelector('script[src]').src.replace('app.js', '" + name + "')))"
}

// rowsInPage is an expression for what the page knows of all instances: the node, group, slot and state of each.
var rowsInPage = `(async () => {
	const { draw } = ` + module("stream.js") + `
	const rows = await new Promise(done => { const stop = draw({ changed() {}, replaced(p) {
		const c = p.instances.columns, all = []
		for (let h = 0; h < p.instances.length; h++) {
			if (c[0][h]) all.push([p.nodes.names[c[1][h]] || '', p.groups.names[c[2][h]], c[3][h], c[0][h]].join(' '))
		}
		setTimeout(() => { stop(); done(all) })
	} }) })
	return rows.sort().join('\n')
})()`

// rows returns the same as the state has it.
func (s *synthetic) rows() string {
	var all []string
	state := s.machine.Current()
	for _, i := range state.Instances.All() {
		if i.Terminal() {
			continue
		}
		row := slices.Index(frame.ObservedStates(), i.Status.Observed) + 1
		switch i.Desired {
		case model.DesiredDraining:
			row |= frame.DesiredDraining
		case model.DesiredStopped:
			row |= frame.DesiredStopped
		case model.DesiredRunning:
		}
		if i.Eviction.Requested {
			row |= frame.InstanceRequested
		}
		n, _ := state.Nodes.Get(i.Node)
		all = append(all, fmt.Sprint(n.Name, " ", i.Group, " ", i.Slot, " ", row))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// hasRows waits until the page knows exactly what the state has.
func (v *tab) hasRows(s *synthetic) {
	v.t.Helper()
	want, got := s.rows(), ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if got = v.text(rowsInPage); got == want {
			return
		}
	}
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	v.t.Fatalf("the page has %d instances, and the state %d; the first ones are %q and %q", len(b), len(a), b[0], a[0])
}

// pixels is an expression for a text that is equal for equal pictures of the map.
const pixels = `(async () => { const c = document.querySelector('canvas')
	const sum = await crypto.subtle.digest('SHA-256', c.getContext('2d').getImageData(0, 0, c.width, c.height).data)
	return c.width + 'x' + c.height + ' ' + [...new Uint8Array(sum)].map(b => b.toString(16)).join('') })()`

// The map shows what the stream says, and draws only what changed. Five tabs share one stream. When it breaks, a new
// snapshot replaces what was shown. A tab without the secret gets nothing.
func TestMap(t *testing.T) {
	t.Parallel()
	browser := startBrowser(t)
	s := newSynthetic(t, 300, 60, 100)
	v := openFleet(t, browser, s)
	v.mapped()
	for _, part := range []struct {
		name string
		test func(*testing.T, *chrome.Browser, *synthetic, *tab)
	}{
		{"rows", testRows}, {"drawn", testDrawn}, {"keys", testKeys}, {"filter", testMapFilter},
		{"below", testBelow}, {"forced", testForced}, {"broken", testBroken},
		{"alone", testAlone}, {"hidden", testHidden}, {"tabs", testTabs}, {"secret", testSecret}, {"no answer", testNoAnswer},
		{"damaged", testDamaged},
	} {
		t.Run(part.name, func(t *testing.T) {
			v.t = t
			part.test(t, browser, s, v)
		})
	}
	// The test reads the canvas, and one node is not known to the synthetic servers.
	if troubles := v.Troubles("willReadFrequently", "404 (Not Found)"); len(troubles) > 0 {
		t.Errorf("what went wrong in the page:\n%s", strings.Join(troubles, "\n"))
	}
}

// What the page decodes is the state, before and after changes.
func testRows(_ *testing.T, _ *chrome.Browser, s *synthetic, v *tab) {
	v.hasRows(s)
	for range 5 {
		s.changeSome(400)
		time.Sleep(100 * time.Millisecond)
	}
	v.hasRows(s)
}

// After changes, the cells that were drawn one by one look as if all were drawn anew.
func testDrawn(t *testing.T, _ *chrome.Browser, s *synthetic, v *tab) {
	before := v.text(pixels)
	s.intent(120, model.IntentCordoned)
	s.changeSome(200)
	time.Sleep(1500 * time.Millisecond)
	single := v.text(pixels)
	if single == before {
		t.Error("a change changes nothing in the map")
	}
	v.do(v.Look(t.Context(), 1280, 900, true))
	v.changed(single)
	dark := v.text(pixels)
	v.do(v.Look(t.Context(), 1280, 900, false))
	v.changed(dark)
	if all := v.text(pixels); all != single {
		t.Errorf("drawn one by one: %s, all anew: %s", single, all)
	}
	s.intent(120, model.IntentActive)
}

// changed waits until the map looks otherwise.
func (v *tab) changed(before string) {
	v.t.Helper()
	for end := time.Now().Add(20 * time.Second); v.text(pixels) == before; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			v.t.Fatal("the map stays as it was")
		}
	}
}

// Arrow keys select a node, the inspector shows it as it changes, and the address names it. Enter leads to it.
func testKeys(t *testing.T, _ *chrome.Browser, s *synthetic, v *tab) {
	v.run("document.querySelector('.mapbox').focus()")
	for _, key := range []string{"ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"} {
		v.do(v.Press(t.Context(), key))
		time.Sleep(50 * time.Millisecond)
	}
	v.until("location.hash.includes('node=node-00')")
	v.until("document.querySelector('.inspector h2')?.innerText.startsWith('node-00')")
	v.run("location.hash = '#/problems'")
	v.until("!document.querySelector('canvas')")
	v.run("location.hash = '#/fleet?node=node-0120'")
	v.until("document.querySelector('.inspector h2')?.innerText.startsWith('node-0120')")
	v.shootMap("map-selected", false)
	s.intent(120, model.IntentCordoned)
	v.until("document.querySelector('.inspector h2').innerText.includes('cordoned')")
	s.intent(120, model.IntentActive)
	v.until("document.querySelector('.inspector h2').innerText.includes('active')")
	v.run("document.querySelector('.mapbox').focus()")
	v.do(v.Press(t.Context(), "Enter"))
	v.until("location.hash === '#/nodes/node-0120'")
	v.run("location.hash = '#/fleet'")
	v.mapped()
}

// The filter dims what does not match.
func testMapFilter(t *testing.T, _ *chrome.Browser, _ *synthetic, v *tab) {
	before := v.text(pixels)
	v.fill("#filter", "rack=rack-01")
	v.until("location.hash.includes('rack-01') && document.body.innerText.includes('50 of 300 nodes')")
	v.shootMap("map-filter", true)
	if after := v.text(pixels); after == before {
		t.Error("the filter changes nothing in the map")
	}
	v.fill("#filter", "")
	v.until("document.body.innerText.includes('300 nodes.')")
}

// A map that is higher than its place says how many racks are further down, and leads there.
func testBelow(_ *testing.T, _ *chrome.Browser, _ *synthetic, v *tab) {
	for range 4 {
		v.run(`document.querySelector('[aria-label="larger cells"]').click()`)
		time.Sleep(100 * time.Millisecond)
	}
	v.until("/^↓ below: the rest of [1-5] racks?$/.test(document.querySelector('.below').innerText.trim())")
	v.shootMap("map-below", false)
	v.run("document.querySelector('.below').click()")
	v.until("document.querySelector('.mapview').scrollTop > 0")
	v.run("document.querySelector('.mapview').scrollTop = 1e6")
	v.until("!document.querySelector('.below')")
	for range 4 {
		v.run(`document.querySelector('[aria-label="smaller cells"]').click()`)
		time.Sleep(100 * time.Millisecond)
	}
}

// In forced colours the map is drawn in those of the person, and its legend shows what the map shows.
func testForced(t *testing.T, _ *chrome.Browser, _ *synthetic, v *tab) {
	const corner = "[...document.querySelector('canvas').getContext('2d').getImageData(0, 0, 1, 1).data].join()"
	v.do(v.Emulate(t.Context(), 1280, 900, map[string]string{"forced-colors": "active", "prefers-color-scheme": "dark"}))
	v.until(corner + " === '0,0,0,255'")
	v.until("getComputedStyle(document.querySelector('.ramp .l4')).backgroundColor.startsWith('color(srgb 0.5')")
	v.until("getComputedStyle(document.querySelector('.key.dashed')).borderColor === 'rgb(255, 255, 255)'")
	if dir := os.Getenv("OUTSPAN_PAGE_SHOTS"); dir != "" {
		v.do(v.Screenshot(t.Context(), filepath.Join(dir, "map-forced.png")))
	}
	v.do(v.Look(t.Context(), 1280, 900, false))
	v.until(corner + " === '255,255,255,255'")
}

// A stream that breaks is opened again, and brings what was missed.
func testBroken(t *testing.T, _ *chrome.Browser, s *synthetic, v *tab) {
	opened := s.opened.Load()
	s.breakStreams()
	s.changeSome(500)
	v.hasRows(s)
	if n := s.opened.Load(); n != opened+1 {
		t.Errorf("%d streams were opened after the break, want 1", n-opened)
	}
}

// The map says that the server knows no leader.
func testAlone(_ *testing.T, _ *chrome.Browser, s *synthetic, v *tab) {
	s.alone.Store(true)
	v.until("document.querySelector('.fleetmap .note')?.innerText.includes('knows no leader')")
	v.shootMap("map-alone", false)
	s.alone.Store(false)
	v.until("!document.querySelector('.fleetmap .note')")
}

// Five tabs have one long connection.
func testTabs(t *testing.T, browser *chrome.Browser, s *synthetic, v *tab) {
	opened := s.opened.Load()
	for range 4 {
		more := newTab(t, browser, v.served)
		more.do(more.Open(t.Context(), v.served.Address()+"/#/fleet"))
		more.mapped()
		more.hasRows(s)
	}
	if n := s.streams.Load(); n != 1 || s.opened.Load() != opened {
		t.Errorf("five tabs have %d streams, and opened %d more", n, s.opened.Load()-opened)
	}
	v.do(v.Show(t.Context()))
}

// joinWorker is an expression for what the worker tells somebody who shows a pass, for 1.5 s.
func joinWorker(pass string) string {
	return `(async () => {
		const url = document.querySelector('script[src]').src.replace('app.js', 'worker.js')
		window.policy ||= trustedTypes.createPolicy('test', { createScriptURL: u => u })
		const { port } = new SharedWorker(policy.createScriptURL(url), { type: 'module', name: 'outspan' }), heard = []
		port.onmessage = e => heard.push(e.data.copy ? 'rows' : e.data.head ? 'frame' : e.data.course)
		port.postMessage({ rows: true, shown: true })
		port.postMessage({ pass: ` + pass + `, rows: true, shown: true, topics: ['node/node-0001'] })
		await new Promise(done => setTimeout(done, 1500))
		port.postMessage({ bye: true })
		return [...new Set(heard)].join(' ')
	})()`
}

// The worker serves only who shows the secret.
func testSecret(t *testing.T, _ *chrome.Browser, _ *synthetic, v *tab) {
	for _, pass := range []string{"{}", "{ secret: '' }", "{ secret: '" + strings.Repeat("a", 64) + "' }",
		"{ secret: null }",
		"{ session: 'a' }", "null"} {
		if heard := v.text(joinWorker(pass)); heard != "refused" {
			t.Errorf("who shows %s hears: %s", pass, heard)
		}
	}
	heard := v.text(joinWorker("{ secret: sessionStorage.getItem('outspan-page-secret') }"))
	if heard != "live rows frame" {
		t.Errorf("who shows the secret hears: %s", heard)
	}
}

// A tab whose first request fails is asked about once more, and gets the stream.
func testNoAnswer(t *testing.T, _ *chrome.Browser, _ *synthetic, v *tab) {
	heard := v.text(`(async () => {
		const { Hub } = ` + module("hub.js") + `, { passOf } = ` + module("session.js") + `
		const real = fetch, { port1, port2 } = new MessageChannel(), heard = []
		let asked = 0
		window.fetch = (to, o) =>
			to === '/v1/auth/whoami' && ++asked === 1 ? Promise.reject(new TypeError('no network')) : real(to, o)
		new Hub().connect(port2)
		await new Promise(done => {
			port1.onmessage = e => {
				if (e.data.course) heard.push(e.data.course)
				if (['live', 'refused', 'ended'].includes(e.data.course)) done()
			}
			port1.postMessage({ pass: passOf(), shown: true })
		})
		port1.postMessage({ bye: true })
		window.fetch = real
		return heard.join(' ')
	})()`)
	if heard != "broken connecting connecting live" {
		t.Errorf("a tab whose first request fails hears: %s", heard)
	}
}

// A damaged frame is an error, never a hang.
func testDamaged(t *testing.T, _ *chrome.Browser, _ *synthetic, v *tab) {
	b := frame.Builder{}
	b.Begin(nil, frame.Header{Server: "s1", Index: 7})
	b.SetFlags(frame.FlagReset | frame.FlagWhole)
	b.Text(frame.KindCounts, []byte(`{"nodes":{}}`))
	b.Rows(frame.KindNodes, []uint32{1, 5},
		[][]uint32{{1, 2}, {70000, 1}, {3, 3}, {4, 300}, {0, 0}, {9, 9}}, []string{"n1", "ö"})
	b.Rows(frame.KindInstances, []uint32{0, 1, 2}, [][]uint32{{3, 3, 1}, {1, 5, frame.None}, {0, 0, 0}, {0, 1, 2}}, nil)
	var list []string
	for _, one := range b.Finish() {
		list = append(list, fmt.Sprint(one))
	}
	got := map[string]int{}
	v.do(v.Eval(t.Context(), `(async () => {
		const { Reader, Cutter } = `+module("frames.js")+`
		const good = Uint8Array.from([`+strings.Join(list, ",")+`]), got = { good: 0, error: 0, taken: 0, other: 0 }
		const p = new Reader().apply(good.slice().buffer).shown
		const c = p.nodes.columns, right = p.nodes.names[5] === 'ö' && c[1][1] === 70000 && c[3][5] === 300
		if (right && p.instances.columns[1][2] === 0xFFFFFFFF && p.head.index === 7) got.good++
		const cutter = new Cutter(), cut = []
		for (const byte of [...good, ...good]) cut.push(...cutter.push(Uint8Array.of(byte)))
		if (cut.length === 2 && new Uint8Array(cut[1]).every((b, i) => b === good[i])) got.good++
		for (let i = 0; i < 4 * good.length; i++) {
			const bad = good.slice()
			bad[i >> 2] ^= [1, 16, 128, 255][i & 3]
			try { new Reader().apply(bad.buffer); got.taken++ } catch (e) { got[e instanceof Error ? 'error' : 'other']++ }
		}
		for (let n = 0; n < good.length; n += 8) {
			try { new Reader().apply(good.slice(0, n).buffer); got.other++ } catch { got.error++ }
		}
		return got })()`, &got))
	if got["good"] != 2 || got["other"] != 0 || got["error"] < 100 {
		t.Errorf("of a good frame and damaged ones: %v", got)
	}
}

// The stream ends while all tabs are hidden, and goes on when one is shown.
func testHidden(t *testing.T, _ *chrome.Browser, s *synthetic, v *tab) {
	hide := `Object.defineProperty(document, 'hidden', { value: %v, configurable: true })
		document.dispatchEvent(new Event('visibilitychange'))`
	v.run(fmt.Sprintf(hide, true))
	s.changeSome(100)
	for end := time.Now().Add(40 * time.Second); s.streams.Load() > 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the stream goes on while nobody looks")
		}
	}
	s.changeSome(100)
	v.run(fmt.Sprintf(hide, false))
	v.hasRows(s)
}
