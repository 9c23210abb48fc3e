package e2e

import (
	"strings"
	"testing"
)

// A person who hears the page and types drains a node of a real cluster, in forced colours: from the fleet over the
// forecast, which is read, to the drain, whose end is heard. The person knows the accessibility tree alone.
func TestPageByEar(t *testing.T) {
	long(t)
	needChromium(t)
	t.Parallel()
	c := startCluster(t, options{servers: 1, agents: 3})
	c.run(t, job{name: "web", count: 4})
	p := c.openPage(t)
	ctx, ear := t.Context(), p.Reader()
	p.do(p.Emulate(ctx, 1280, 800, map[string]string{"forced-colors": "active"}))
	hears := func(role, text string) {
		t.Helper()
		_, err := ear.Await(ctx, patience, role, text)
		p.do(err)
	}
	tabTo := func(role, name string) {
		t.Helper()
		p.do(ear.Go(ctx, "Tab", 40, role, name))
	}
	hears("heading", "Fleet")
	hears("live", "3 of 3 nodes active, 4 of 4 instances ready")
	hears("rowheader", "n2")
	tabTo("link", "n1")
	p.do(ear.Go(ctx, "ArrowDown", 2, "link", "n2"))
	p.do(p.Press(ctx, "Enter"))
	hears("heading", "Node n2 active")
	tabTo("link", "Drain …")
	p.do(p.Press(ctx, "Enter"))
	tabTo("textbox", "Why, for people")
	p.do(p.Press(ctx, "by ear"))
	tabTo("button", "Show the forecast")
	p.do(p.Press(ctx, "Enter"))
	hears("live", "would leave. This is what would happen if the drain began now.")
	hears("rowheader", "web/")
	hears("cell", "move")
	tabTo("button", "Start the drain")
	p.do(p.Press(ctx, "Enter"))
	hears("heading", "Drain of n2")
	all := list[drainView](t, c, "/v1/drains")
	if len(all) != 1 || all[0].Nodes[0].Node != "n2" {
		t.Errorf("the page started %+v", all)
	}
	hears("heading", "Drain of n2 drained")
	p.look("the end of the drain, in forced colours")
	if troubles := p.Troubles(); len(troubles) > 0 {
		t.Errorf("what went wrong in the page:\n%s", strings.Join(troubles, "\n"))
	}
}
