package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/testbed/chrome"
)

// listener drives the page by the accessibility tree and the keyboard alone.
type listener struct {
	*chrome.Reader
	v *tab
}

func (l *listener) press(keys ...string) {
	l.v.t.Helper()
	for _, key := range keys {
		l.v.do(l.v.Press(l.v.t.Context(), key))
	}
}

// hears waits until the page tells this.
func (l *listener) hears(role, text string) chrome.Spoken {
	l.v.t.Helper()
	found, err := l.Await(l.v.t.Context(), 30*time.Second, role, text) // generous
	l.v.do(err)
	return found
}

// tab presses Tab until this has the focus.
func (l *listener) tab(role, name string) {
	l.v.t.Helper()
	l.v.do(l.Go(l.v.t.Context(), "Tab", 40, role, name))
}

// A person who sees nothing and has no mouse finds a node in the fleet, reads what a drain of it would do, and starts
// it, also in forced colours. The lists are grids whose sorting is told.
func TestDrainByEar(t *testing.T) {
	t.Parallel()
	browser := startBrowser(t)
	for _, look := range []string{"light", "forced"} {
		t.Run(look, func(t *testing.T) {
			w := newWorld(32, 60).breakSome()
			w.nodes[1].Intent, w.nodes[1].State = "active", "active" // n2 does not drain yet
			c := w.serve(t)
			v := openWorld(t, browser, c)
			v.do(v.Emulate(t.Context(), looks[look].width, looks[look].height, looks[look].media))
			l := &listener{v.Reader(), v}
			l.hears("heading", "Fleet")
			l.hears("live", "6 problems")
			l.hears("grid", "Nodes")
			l.hears("columnheader", "node")
			l.hears("rowheader", "n1")
			l.tab("link", "n1")
			l.press("ArrowUp", "ArrowRight")
			l.press("Enter") // sorts by state, and back
			l.press("Enter", "Enter", "ArrowDown", "Control+Home")
			v.do(l.Go(t.Context(), "ArrowDown", 3, "link", "n2"))
			l.press("Enter")
			l.hears("heading", "Node n2 active")
			l.tab("link", "Drain …")
			l.press("Enter")
			l.hears("heading", "Drain n2 active")
			l.tab("textbox", "Why, for people")
			l.press("kernel 6.12.4")
			l.tab("checkbox", "Leave instances of system groups alone")
			l.press(" ")
			l.tab("button", "Show the forecast")
			l.press("Enter")
			l.hears("live", "would leave. This is what would happen if the drain began now.")
			l.hears("heading", "Forecast")
			l.hears("cell", "waits: budget min ready")
			l.hears("StaticText", "the budget of orders/db allows no more to be away")
			l.tab("button", "Start the drain")
			l.press("Enter")
			l.hears("heading", "Drain of n2")
			var started string
			c.change(func() { started = c.bodies[len(c.bodies)-1] })
			if want := `/v1/drains {"nodes":["n2"],"message":"kernel 6.12.4","ignore_system":true}`; started != want {
				t.Errorf("started %s, want %s", started, want)
			}
			if at, err := l.At(t.Context()); err != nil || at.Role != "heading" || !strings.HasPrefix(at.Name, "Drain of n2") {
				t.Errorf("after the start the focus is on %s (%v)", at, err)
			}
		})
	}
}
