package ui

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// The page knows each setting with its default.
func TestKnownSettings(t *testing.T) {
	text, err := os.ReadFile("page/settings.js")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "export const known = {")
	table, _, ok := strings.Cut(table, "\n}")
	if !ok {
		t.Fatal("settings.js has no table of the known settings")
	}
	known := map[string]any{}
	for _, m := range regexp.MustCompile(`(\w+):\s*\[\s*('[^']*'|\d+|true|false),`).FindAllStringSubmatch(table, -1) {
		var value any
		if err := json.Unmarshal([]byte(strings.ReplaceAll(m[2], "'", `"`)), &value); err != nil {
			t.Fatal(err)
		}
		known[m[1]] = value
	}
	raw, err := json.Marshal(model.DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"rescheduler_window": ""} // left out of the JSON while it is empty
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	for key, value := range want {
		if got, ok := known[key]; !ok || got != value {
			t.Errorf("settings.js has %v as the default of %s, and it is %v", got, key, value)
		}
	}
	for key := range known {
		if _, ok := want[key]; !ok {
			t.Errorf("settings.js has the setting %s, and there is none", key)
		}
	}
}

// seriesAnswer is an hour of three series of the nodes, with a gap and an election.
func seriesAnswer() string {
	begin := time.Now().Add(-time.Hour).Truncate(time.Minute).UTC()
	column := func(name, unit string, of func(i int) string) string {
		var values []string
		for i := range 61 {
			value := of(i)
			if i >= 20 && i < 30 || i > 58 {
				value = "null"
			}
			values = append(values, value)
		}
		return fmt.Sprintf(`{"name":%q,"unit":%q,"local":false,"help":"","values":[%s]}`, name, unit, strings.Join(values, ","))
	}
	at := func(f func(int) int) func(int) string { return func(i int) string { return fmt.Sprint(f(i)) } }
	return fmt.Sprintf(`{"server":"s1","from":%q,"step":"1m","length":61,"newest":%q,"marks":[{"time":%q,"term":7,"server":"s2"}],
		"items":[%s]}`, begin.Format(time.RFC3339), begin.Add(58*time.Minute).Format(time.RFC3339),
		begin.Add(30*time.Minute).Format(time.RFC3339), strings.Join([]string{
			column("nodes_active", "", at(func(i int) int { return 40 - i/20 })),
			column("nodes_draining", "", at(func(i int) int { return i / 20 })),
			column("nodes_cordoned", "", at(func(int) int { return 0 })),
			column("memory_allocated", "bytes", at(func(i int) int { return (300 + i) << 30 })),
			column("memory_used", "bytes", at(func(i int) int { return (200 + i*i/20) << 30 })),
			column("memory_capacity", "bytes", at(func(int) int { return 512 << 30 })),
		}, ","))
}

// TestPlotsAndScreens shows plots, servers and settings in a browser, with answers that a real cluster seldom gives.
func TestPlotsAndScreens(t *testing.T) {
	t.Parallel()
	browser := startBrowser(t)
	for name, test := range map[string]func(*testing.T, *cluster, *tab){
		"gaps": testPlotGaps, "empty": testPlotEmpty, "refused": testPlotRefused, "servers": testServers,
		"settings": testSettings, "moved": testSettingsMoved, "nothing kept": testPlotNothingKept,
	} {
		t.Run(name, func(t *testing.T) {
			c, p := newCluster(), start(t)
			settings, err := json.Marshal(model.DefaultSettings())
			if err != nil {
				t.Fatal(err)
			}
			c.answers["/v1/settings"] = `{"index":4,` + string(settings[1:])
			c.answers["/v1/auth/whoami"] = `{"subject":"me","local":true,"verbs":[]}`
			c.answers["/v1/series"] = seriesAnswer()
			p.cfg.Forward = c.forward
			one, err := browser.NewPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			v := &tab{Page: one, t: t, served: p}
			if name == "empty" {
				c.answers["/v1/series"] = regexp.MustCompile(`"values":\[[^]]*\]`).ReplaceAllString(seriesAnswer(),
					`"values":[`+strings.TrimSuffix(strings.Repeat("null,", 61), ",")+`]`)
			}
			v.do(one.Look(t.Context(), 1280, 800, false))
			v.do(one.Open(t.Context(), "file://"+p.File()))
			v.shows("1 of 1 node active")
			test(t, c, v)
			v.shoot(name)
			if troubles := one.Troubles("Failed to load resource"); len(troubles) > 0 {
				t.Errorf("what went wrong in the page: %q", troubles)
			}
		})
	}
}

// A gap is said and stays one in the table, an election is named, and the keys move through the values.
func testPlotGaps(t *testing.T, _ *cluster, v *tab) {
	v.shows("s2 elected")
	v.until("document.querySelectorAll('.plot canvas').length === 2")
	v.until("!document.body.innerText.includes('cordoned')") // it is 0 all the time
	v.until("document.querySelector('.plot .legend').innerText.includes('not known')")
	value := `document.querySelector('.plot [role=slider]').getAttribute('aria-valuetext')`
	v.run("document.querySelector('.plot [role=slider]').focus()")
	v.until(value + ".includes('allocated 358 GiB')")
	for range 30 {
		v.do(v.Press(t.Context(), "ArrowLeft"))
	}
	v.until(value + ".includes('allocated not known')")
	v.do(v.Press(t.Context(), "Escape"))
	v.until(value + ".includes('allocated 358 GiB')")
	v.run("document.querySelector('.plot summary').click()")
	v.until("document.querySelectorAll('.plot tbody tr').length === 59")
	v.until("[...document.querySelectorAll('.plot tbody td')].filter(d => d.innerText === 'not known').length === 30")
	v.shows("s2 leads since")
	v.run("document.querySelector('.plot summary').click(); document.querySelector('.plots').scrollIntoView()")
}

// Before the first sample a plot says so.
func testPlotEmpty(_ *testing.T, _ *cluster, v *tab) {
	v.shows("No samples yet")
	v.until("document.querySelectorAll('.plot canvas').length === 0")
}

// Whoever may not read sums learns that beside everything else.
func testPlotRefused(t *testing.T, c *cluster, v *tab) {
	c.change(func() { c.errors["/v1/series"] = model.Refuse(model.CodeForbidden, "me may not do node.read") })
	v.run("location.hash = '#/nodes/n1'")
	v.shows("me may not do node.read")
	v.shows("Instances")
	c.change(func() { delete(c.errors, "/v1/series") })
}

// Of a node without samples the page shows the servers' words, and no empty plots.
func testPlotNothingKept(_ *testing.T, c *cluster, v *tab) {
	c.change(func() { c.answers["/v1/series"] = `{"note":"It keeps those of 200 nodes.",` + seriesAnswer()[1:] })
	v.run("location.hash = '#/nodes/n1'")
	v.shows("It keeps those of 200 nodes.")
	v.until("document.querySelectorAll('.plot').length === 0")
}

const memberS1 = `{"name":"s%d","id":"0%d","address":"10.0.0.%d:7640","role":"voter","leader":%t,"voter":%t,"state":%q,"index_lag":%d,
	"answers":%t,"version":"1.2.3","gossip":"10.0.0.1:7642","clock_ahead":"3ms","disk":"enough","disk_free_bytes":3000000000,
	"disk_total_bytes":10000000000,"certificate_ends":"2099-01-01T00:00:00Z","silent":%q}`

// A server that is away, one without a vote, and one that no answer knows say so by words.
func testServers(_ *testing.T, c *cluster, v *tab) {
	c.change(func() {
		c.answers["/v1/members"] = `{"items":[` + strings.Join([]string{
			fmt.Sprintf(memberS1, 1, 1, 1, true, true, "alive", 0, true, "0s"),
			fmt.Sprintf(memberS1, 2, 2, 2, false, true, "failed", 12000, false, "2m"),
			fmt.Sprintf(memberS1, 3, 3, 3, false, true, "alive", 7, true, "0s"),
			fmt.Sprintf(memberS1, 4, 4, 4, false, false, "alive", 900, true, "0s"),
		}, ",") + `]}`
		c.answers["/v1/status"] = strings.Replace(c.answers["/v1/status"], `"problems":[]`,
			`"problems":[{"subject":"server/s2","code":"server_silent","message":"s2 does not answer","next":"look at it: outspan server why"}]`, 1)
	})
	v.run("location.hash = '#/servers'")
	v.shows("3 with a vote: 1 may be away")
	v.shows("failed")
	v.shows("no vote")
	v.shows("12,000")
	v.shows("2 min ago")
	v.shows("s2 does not answer")
	v.shows("outspan server why")
}

// A dangerous change needs its preview and its name. It goes with the index that was previewed.
func testSettings(_ *testing.T, c *cluster, v *tab) {
	v.run("location.hash = '#/settings'")
	v.shows("0 differ from their defaults")
	v.run("location.hash = '#/settings/offline_after'")
	v.shows("ow long a node is silent")
	v.until(button("Preview") + ".disabled")
	c.change(func() {
		c.answers["/v1/settings"] = `{"index":4,"offline_after":"1m","settings":{"index":4,"offline_after":"30s"}}`
	})
	v.fill("form input", "30s")
	v.until("!" + button("Preview") + ".disabled")
	v.run(button("Preview") + ".click()")
	v.shows("makes nodes offline sooner")
	v.until(button("Change the setting") + ".disabled")
	v.fill(".start input", "offline_after")
	v.until("!" + button("Change the setting") + ".disabled")
	v.shows("outspan settings set offline_after=30s")
}

// A preview counts only for the settings that it was made of.
func testSettingsMoved(t *testing.T, c *cluster, v *tab) {
	testSettings(t, c, v)
	c.change(func() {
		c.answers["/v1/settings"] = `{"index":5,"offline_after":"50s","settings":{"index":5,"offline_after":"30s"}}`
	})
	v.shows("The preview was for another value, or the settings have changed since")
	v.until("!" + button("Change the setting"))
}
