package e2e

import (
	"fmt"
	"testing"
	"time"
)

// seriesView is what the test reads of GET /v1/series.
type seriesView struct {
	Server string
	Items  []struct {
		Name   string
		Values []*float64
	}
	Marks []struct {
		Term   uint64
		Server string
	}
}

// most returns the largest value of a series, and how many values are known.
func (v seriesView) most(name string) (most float64, known int) {
	for _, c := range v.Items {
		for _, value := range c.Values {
			if c.Name == name && value != nil {
				most, known = max(most, *value), known+1
			}
		}
	}
	return most, known
}

// The page's plots show a drain that happened, and what machines use. A server that restarts gets from the others what
// it missed, and says so of itself that it does not know it. A person changes a setting in the page.
func TestPagePlots(t *testing.T) {
	long(t)
	t.Parallel()
	needChromium(t)
	c := startCluster(t, options{servers: 3, agents: 2})
	c.run(t, job{name: "web", count: 2})
	p := c.openPage(t)
	p.shows("2 of 2 nodes active, 2 of 2 instances ready")
	p.shows("used by the machines")
	testPlotsOfDrain(t, c, p)
	testPlotsOfRestart(t, c)
	testPlotsByKeyboard(t, p)
	testServersScreen(t, c, p)
	testSettingsScreen(t, c, p)
	if troubles := p.Troubles(); len(troubles) > 0 {
		t.Errorf("what went wrong in the page: %q", troubles)
	}
}

// testPlotsOfDrain drains a node and waits until the plot of the nodes has it.
func testPlotsOfDrain(t *testing.T, c *cluster, p *webPage) {
	c.must(t, "node", "drain", "n1", "--detach")
	deadline := time.Now().Add(3 * patience)
	for {
		var got seriesView
		c.mustGet(t, "/v1/series?names=nodes_draining,nodes_measured,memory_used,memory_allocated&from=15m", &got)
		draining, _ := got.most("nodes_draining")
		measured, _ := got.most("nodes_measured")
		used, _ := got.most("memory_used")
		if draining == 1 && measured == 2 && used > 1<<20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the series have no drain, or no use of the machines: %+v", got)
		}
		time.Sleep(time.Second)
	}
	p.until(`[...document.querySelectorAll('.plot')].some(f => f.innerText.startsWith('Nodes') && /draining\s+1/.test(f.innerText))`)
	p.run(`[...document.querySelectorAll('.plot')].find(f => f.innerText.startsWith('Nodes')).querySelector('summary').click()`)
	p.until(`[...document.querySelectorAll('.plot')].find(f => f.innerText.startsWith('Nodes')).querySelectorAll('tbody tr').length > 1`)
	p.until("document.querySelectorAll('.plot canvas').length >= 3")
	p.shoot("plots")
	p.run("location.hash = '#/nodes/n1'")
	p.do(p.Until(t.Context(), 3*time.Minute, "document.body.innerText.includes('used by the machine')")) // one in 2 min
	p.shoot("plots-node")
	p.goTo("#/jobs/web", "should run")
	p.shoot("plots-job")
}

// testPlotsOfRestart restarts a server that does not lead. It must know of the cluster from before its start, and only
// of the time since then of itself.
func testPlotsOfRestart(t *testing.T, c *cluster) {
	leader := c.leader(t)
	var one *member
	for _, s := range c.servers {
		if s != leader {
			one = s
		}
	}
	one.Kill()
	began := time.Now()
	one.start(t)
	waitFor(t, "the series from before the restart", 3*patience, func() error {
		var got seriesView
		if err := c.get("/v1/series?server="+one.Name+"&names=nodes_draining,nodes_active,server_goroutines&from=15m",
			&got); err != nil {
			return err
		}
		_, cluster := got.most("nodes_active")
		_, own := got.most("server_goroutines")
		since := int(time.Since(began)/(10*time.Second)) + 2
		if draining, _ := got.most("nodes_draining"); draining < 1 || own == 0 || cluster <= own || own > since ||
			got.Server != one.Name || len(got.Marks) == 0 {
			return fmt.Errorf("%d samples of the cluster and %d of the server, %d since it started, %g draining",
				cluster, own, since, draining)
		}
		return nil
	})
}

// testPlotsByKeyboard moves through a plot by keys.
func testPlotsByKeyboard(t *testing.T, p *webPage) {
	p.goTo("#/fleet", "used by the machines")
	p.until("document.querySelector('.plot [role=slider] canvas')")
	p.run("document.querySelector('.plot [role=slider]').focus()")
	var before string
	p.do(p.Eval(t.Context(), "document.querySelector('.plot [role=slider]').getAttribute('aria-valuetext')", &before))
	p.do(p.Press(t.Context(), "ArrowLeft"))
	p.until(fmt.Sprintf("document.querySelector('.plot [role=slider]').getAttribute('aria-valuetext') !== %q", before))
	p.shoot("plots-keyboard")
}

// testServersScreen looks at the servers, and at the plots of another one than the page asks.
func testServersScreen(t *testing.T, c *cluster, p *webPage) {
	p.goTo("#/servers", "3 with a vote: 1 may be away")
	p.until("document.querySelectorAll('tbody tr').length === 3")
	p.until("document.body.innerText.includes('leads') && document.body.innerText.includes('follows')")
	p.shoot("servers")
	for _, s := range c.servers {
		p.goTo("#/servers/"+s.Name, "Server "+s.Name)
		p.until("[...document.querySelectorAll('.plot')].some(f => /resident\\s+\\d/.test(f.innerText))")
	}
	p.shoot("server")
}

// testSettingsScreen changes a setting by the page. It needs its name to be typed.
func testSettingsScreen(t *testing.T, c *cluster, p *webPage) {
	p.goTo("#/settings", "offline_after")
	p.shoot("settings")
	p.goTo("#/settings/volume_cooling", "ow long the old copy")
	p.run(fill("form input", "2h"))
	p.click("Preview")
	p.shows("removes old copies for good")
	p.shoot("setting")
	var off bool
	p.do(p.Eval(t.Context(),
		"[...document.querySelectorAll('button')].find(b => b.innerText === 'Change the setting').disabled", &off))
	if !off {
		t.Error("a dangerous change needs no name")
	}
	p.run(fill(".start input", "volume_cooling"))
	p.click("Change the setting")
	p.shows("It is 2h now.")
	p.shows("24h → 2h")
	var got struct {
		VolumeCooling string `json:"volume_cooling"`
	}
	c.mustGet(t, "/v1/settings", &got)
	if got.VolumeCooling != "2h" {
		t.Errorf("volume_cooling is %q", got.VolumeCooling)
	}
	p.shoot("setting-done")
}

// fill is an expression that types a text into a field.
func fill(selector, text string) string {
	return fmt.Sprintf(`(() => { const f = document.querySelector(%q); f.value = %q; f.dispatchEvent(new Event('input',
		{ bubbles: true })) })()`, selector, text)
}
