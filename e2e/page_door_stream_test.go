package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// rowsOf follows the rows of the page's stream in window.rows, as names of nodes, and makes window.course its course.
const rowsOf = `(async () => {
	const { draw, stream } = await import(document.querySelector('script[src]').src.replace('app.js', 'stream.js'))
	const take = p => { window.rows = p.nodes.names.filter(Boolean).sort().join(' ') }
	window.rows = ''
	window.course = () => stream.value.course
	draw({ replaced: take, changed: take })
})()`

// entered waits until somebody is signed in, and follows the stream of this page.
func (p *webPage) entered(who string) {
	p.t.Helper()
	p.until(fmt.Sprintf("document.querySelector('.who')?.innerText === %q && location.hash === '#/problems'", who))
	p.run(rowsOf)
}

// testDoorStream follows the stream by the worker that the tabs of one browser share. It ends at the sign-out. The next
// sign-in gets a stream at once, also with the same token. Whoever signs in next sees no rows of the person before, and
// neither does a tab that the person before has left open.
func testDoorStream(t *testing.T, d *doors) {
	const live = "window.course() === 'live' && window.rows === 'n1 n2'"
	first, none := d.token(t, "first", "--role", "viewer", "--ttl", "1h"), d.token(t, "none")
	p := d.visit(t, 2, "#/problems")
	p.enter(first)
	p.entered("token:first")
	p.until(live)
	other := d.visit(t, 2, "#/problems") // the browser is signed in
	other.entered("token:first")
	other.until(live)
	for _, tab := range []*webPage{p, other} {
		own := func(at string) bool { return strings.HasSuffix(at, "/v1/page/stream") }
		if slices.ContainsFunc(tab.Requests(), own) {
			t.Error("a tab has a stream of its own")
		}
	}
	leave := func() {
		t.Helper()
		p.do(p.Show(t.Context()))
		p.click("Sign out")
		p.until("document.querySelector('h1')?.innerText === 'Sign in'")
		p.do(other.Show(t.Context()))
		other.shows("Your sign-in has ended")
		other.until("window.course() !== 'live'")
	}
	leave()
	p.enter(first)
	p.entered("token:first")
	p.until(live)
	p.do(other.Show(t.Context()))
	other.entered("token:first") // by itself
	other.until(live)
	leave()
	p.enter(none)
	p.entered("token:none")
	p.do(other.Show(t.Context()))
	other.entered("token:none")
	for _, tab := range []*webPage{p, other} {
		p.do(tab.Show(t.Context()))
		tab.until("window.course() === 'refused'") // this person may not see nodes
		var rows string
		p.do(tab.Eval(t.Context(), "new Promise(done => setTimeout(done, 1000)).then(() => window.rows)", &rows))
		if rows != "" {
			t.Errorf("who may see nothing has the rows %s", rows)
		}
	}
}
