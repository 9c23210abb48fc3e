package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

// specJSON returns a spec of the job web as servers send it.
func specJSON(count int, more string) string {
	return fmt.Sprintf(`{"name":"web","class":"production","groups":[{"name":"http","count":%d,"role":"service",
		"exec":{"command":"/bin/web","args":["--a","b"]},"resources":{"cpu":100,"memory_bytes":67108864}%s}]}`, count, more)
}

const (
	jobRest = `"name":"web","class":"production","status":"running","stable_version":2,"purge":false,"index":40,"avoids":[],
		"deployment_id":"web-3","groups":[{"name":"http","role":"service","version":3,"count":4,"ready":2,"placed":4,
		"pending":0,"reason":"","message":""}]`
	budgetWeb = `{"name":"web/http","scope":"group","want":6,"min_ready":4,"max_down":2,"ready":4,"held":1,"unheard":0,
		"down":{"voluntary":1,"involuntary":1,"by_cause":{"node_draining":1,"failed":1}},"allowed":0,
		"rate":{"max":1,"window":"1m","used":1,"next_allowed":"2026-01-01T00:00:00Z"},"blocking":false,"groups":["web/http"],
		"shared":["db"],"spec":{},"text":"4 of 6 must be ready"}`
	instanceA = `{"id":"01AAAAAAAAAAAAAAAAAAAAAAAA","job":"web","group":"http","slot":0,"member":"","node":"n1","node_id":"1",
		"desired":"running","observed":"ready","ready":true,"reason":"","cause":"","stop_cause":"","replaces":"",
		"replaced_by":"","awaits":[],"version":3,"class":"stateless","exit_code":3,"restarts":1,"address":"a",
		"ports":{"http":20001},"volume":"","eviction":{"requested":false},"facts":{},"deployment_id":"web-3",
		"resources":{"cpu":100,"memory_bytes":67108864},"disk":{},"created_at":"2026-01-01T00:00:00Z",
		"started_at":"2026-01-01T00:00:05Z","index":3}`
)

// jobCluster is newCluster with the job web, its versions and an instance.
func jobCluster() *cluster {
	c := newCluster()
	version := func(n int, more, spec string) string {
		return fmt.Sprintf(`{"job":"web","version":%d,"current":%t,"stable":%t,"completed":%t,"actor":"cert:me","message":"",
			"index":%d,"created_at":"2026-01-0%dT00:00:00Z","spec":%s%s}`, n, n == 3, n == 2, n < 3, 10*n, n, spec, more)
	}
	c.answers["/v1/auth/whoami"] = `{"subject":"me","local":true,"verbs":[]}`
	c.answers["/v1/jobs"] = `{"items":[{"version":3,` + jobRest + `}]}`
	c.answers["/v1/jobs/web"] = `{"version":3,"spec":` + specJSON(4, `,"env":{"LOG":"debug"}`) + `,` + jobRest + `}`
	c.answers["/v1/jobs/web/versions"] = `{"items":[` + version(1, "", specJSON(2, "")) + `,` +
		version(2, `,"revert_of":1`, specJSON(2, "")) + `,` + version(3, "", specJSON(4, `,"env":{"LOG":"debug"}`)) + `]}`
	c.answers["/v1/jobs/web/versions/3/file"] = `{"job":"web","version":3,"text":"job \"web\" {\n  count = 4\n}\n"}`
	c.answers["/v1/deployments/web-3"] = `{"id":"web-3","job":"web","version":3,"status":"rolling","reason":"","promoted":false,
		"groups":[{"name":"http","count":4,"current":1,"ready":1,"old":3}],"created_at":"2026-01-03T00:00:00Z","index":30}`
	c.answers["/v1/deployments/web-3/promote"] = `{}`
	c.answers["/v1/budgets/web/http"] = budgetWeb
	c.answers["/v1/instances"] = `{"items":[` + instanceA + `]}`
	c.answers["/v1/instances/01AAAAAAAAAAAAAAAAAAAAAAAA"] = instanceA
	c.answers["/v1/jobs/parse"] = `{"job":` + specJSON(5, "") + `}`
	c.answers["/v1/jobs/validate"] = `{"job":` + specJSON(5, "") + `,"warnings":[],"budgets":[]}`
	c.answers["/v1/jobs/web/plan"] = `{"job":"web","index":40,"version":4,"changes":true,"groups":[{"group":"web/http",
		"created":3,"destroyed":2,"kept":2,"unschedulable":1,"code":"no_capacity_memory","message":"1 node lacks memory",
		"excluded":[{"code":"no_capacity_memory","nodes":1}],"budgets":[],"preempts":[]}]}`
	c.answers["/v1/jobs/web/scale"], c.answers["/v1/jobs/web/stop"] = `{"changed":true}`, `{"changed":true}`
	c.answers["/v1/events"] = `{"id":"1.0","type":"instance.allocated","subject":"instance/01AAAAAAAAAAAAAAAAAAAAAAAA",
		"time":"2026-01-01T00:00:00Z","index":1,"cause":"","actor":"","data":{"node":"1","after":"pending"}}`
	c.answers["/v1/events"] = strings.NewReplacer("\n", "", "\t", "").Replace(c.answers["/v1/events"]) + "\n"
	return c
}

// TestJobPage shows jobs, instances, logs and events in a browser.
func TestJobPage(t *testing.T) {
	t.Parallel()
	browser := startBrowser(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster, *tab)
	}{
		{"job", testJob}, {"acts", testActs}, {"edit", testEdit}, {"stale plan", testStalePlan}, {"mistakes", testMistakes},
		{"logs", testLogs}, {"logs gone", testLogsGone}, {"instance", testInstance}, {"events", testEvents},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, p := jobCluster(), start(t)
			p.cfg.Forward = c.forward
			one, err := browser.NewPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			v := &tab{Page: one, t: t, served: p}
			v.do(one.Look(t.Context(), 1280, 1400, false))
			v.do(one.Open(t.Context(), "file://"+p.File()))
			v.until("location.hash === '#/fleet'")
			test.run(t, c, v)
			v.shoot(test.name)
			if troubles := one.Troubles("Failed to load resource"); len(troubles) > 0 {
				t.Errorf("what went wrong in the page:\n%s", strings.Join(troubles, "\n"))
			}
		})
	}
}

// sent waits for the last POST to a path, and returns its body.
func (v *tab) sent(c *cluster, path string) (body string) {
	v.t.Helper()
	for range 500 {
		c.change(func() {
			for _, b := range c.bodies {
				if rest, ok := strings.CutPrefix(b, path+" "); ok {
					body = rest
				}
			}
		})
		if body != "" {
			return body
		}
		time.Sleep(20 * time.Millisecond)
	}
	v.t.Fatalf("nothing was sent to %s", path)
	return ""
}

// A job shows what each version changed, what uses its budget, and canaries with the act that accepts them.
func testJob(_ *testing.T, c *cluster, v *tab) {
	v.opens("#/jobs/web", "Rollout of version 3")
	v.shows("http.count: 2 → 4, and 1 more")
	v.shows("back to version 1")
	v.run("[...document.querySelectorAll('.versions button')][0].click()")
	v.until("document.querySelectorAll('.diff li').length === 2")
	v.shows("groups.http.env.LOG")
	v.until("document.querySelectorAll('.gauge i').length === 4") // ready, held, on purpose, failed
	v.shows("ready, reserved: its stop is being prepared")
	v.shows("must stay ready: 4")
	v.shows("1 of 1 stop used within 1 min")
	v.shows("no stop may begin now")
	v.click("Promote …")
	v.shows("outspan deployment promote web-3")
	v.click("Promote now")
	if body := v.sent(c, "/v1/deployments/web-3/promote"); body != "{}" {
		v.t.Errorf("promoted with %s", body)
	}
}

// What can't be undone needs the name typed. A scale sends the count that was chosen.
func testActs(_ *testing.T, c *cluster, v *tab) {
	v.opens("#/jobs/web", "Groups")
	v.click("Scale …")
	v.fill(".act input[type=number]", "7")
	v.shows("outspan job scale web 7")
	v.shows("Starts 3 instances of http.")
	v.click("Scale now")
	if body := v.sent(c, "/v1/jobs/web/scale"); body != `{"group":"http","count":7}` {
		v.t.Errorf("scaled with %s", body)
	}
	v.click("Stop …")
	v.until("!" + button("Stop now") + ".disabled")
	v.run("document.querySelector('.act input[type=checkbox]').click()")
	v.until(button("Stop now") + ".disabled")
	v.shows("outspan job stop web --purge")
	v.fill(".act input.short", "web")
	v.click("Stop now")
	if body := v.sent(c, "/v1/jobs/web/stop"); body != `{"purge":true}` {
		v.t.Errorf("stopped with %s", body)
	}
	// The form that removes a stopped job closes when somebody runs the job, and does not become the one that stops it.
	var runs string
	c.change(func() {
		runs = c.answers["/v1/jobs/web"]
		c.answers["/v1/jobs/web"] = strings.Replace(runs, `"status":"running"`, `"status":"stopped"`, 1)
	})
	v.click("Remove …")
	v.fill(".act input.short", "web")
	v.until("!" + button("Remove now") + ".disabled")
	c.change(func() { c.answers["/v1/jobs/web"] = runs })
	v.until(button("Stop …") + " && !" + button("Stop now") + " && !document.querySelector('.act')")
}

// A changed text is planned and run at the index of its plan. The plan does not count for another text. An edit is kept
// while another screen is shown.
func testEdit(_ *testing.T, c *cluster, v *tab) {
	v.opens("#/edit/web", "Plan")
	v.until("document.querySelector('textarea')?.value.includes('count = 4')")
	v.click("Plan")
	v.shows("This would be version 4: 1 instance started, 2 replaced.")
	v.shows("1 of http fits nowhere now: 1 node lacks memory")
	v.until("[...document.querySelectorAll('.diff .change')]" +
		".some(e => /groups.http.count\\s*4\\s*→\\s*5/.test(e.innerText))")
	v.until("document.querySelector('.diff .remove').innerText.includes('groups.http.env.LOG')")
	v.fill("textarea", "job web 2")
	v.shows("The plan was for another text.")
	v.opens("#/jobs/web", "You have changed its file and not run it.")
	v.opens("#/edit/web", "Undo all changes")
	v.until("document.querySelector('textarea').value === 'job web 2'")
	v.click("Plan")
	v.shows("outspan job run web.hcl --if-index 40")
	v.click("Run this plan")
	v.shows("Rollout of version 3") // the screen of the job
	v.until("scrollY === 0")
	if body := v.sent(c, "/v1/jobs"); !strings.Contains(body, `"count":5`) {
		v.t.Errorf("ran %s", body)
	}
	v.until("!document.body.innerText.includes('You have changed its file')")
}

// A plan that is stale is refused in plain words, and nothing is offered to run any more.
func testStalePlan(_ *testing.T, c *cluster, v *tab) {
	c.change(func() {
		c.errors["/v1/jobs"] = model.Refuse(model.CodeConflict, "job web changed: it is at index 41, not 40")
	})
	v.opens("#/edit/web", "Plan")
	v.click("Plan")
	v.click("Run this plan")
	v.shows("Nothing was run: the job has changed since it was planned.")
	v.until("!" + button("Run this plan"))
}

// Each mistake leads to its line. Tab indents, and leaves the field after Esc.
func testMistakes(t *testing.T, c *cluster, v *tab) {
	c.change(func() {
		c.errors["/v1/jobs/parse"] = model.Refuse(model.CodeInvalid, "job:2,3-8: Unsupported argument; there is no key count")
	})
	v.opens("#/edit/web", "Plan")
	v.click("Plan")
	v.click("line 2")
	var chosen string
	v.do(v.Eval(t.Context(), "(a => a.value.slice(a.selectionStart, a.selectionEnd))(document.activeElement)", &chosen))
	if chosen != "  count = 4" {
		t.Errorf("line 2 is %q", chosen)
	}
	v.run("document.activeElement.setSelectionRange(0, 0)")
	v.do(v.Press(t.Context(), "Tab"))
	v.until("document.activeElement.value.startsWith('  job')")
	v.do(v.Press(t.Context(), "Escape"))
	v.do(v.Press(t.Context(), "Tab"))
	v.until("document.activeElement.tagName !== 'TEXTAREA'")
}

// What programs print stays text: no colour, no movement of the cursor, no markup. The search hides other lines.
func testLogs(t *testing.T, c *cluster, v *tab) {
	var lines strings.Builder
	for n := range 300 {
		fmt.Fprintf(&lines, "http[%d] 01AAAAAA | 2026-01-01T00:00:%02d.%06dZ line %d of many\n", n%3, n%60, n, n)
	}
	c.answers["/v1/jobs/web/logs"] = lines.String() + "http[0] 01AAAAAA | 2026-01-01T00:01:00.000000Z \x1b[31mred\x1b[0m" +
		"\x1b]0;title\x07 <img src=x onerror=\"window.hacked=1\"> \x07bell \u202eback\nhttp[1] 01AAAAAA | (no agent)\n" +
		"http[2] 01AAAAAA | 2026-01-01T20:01:01.000000Z long " + strings.Repeat("0123456789 ", 30) + "\n"
	v.opens("#/jobs/web?logs=*", "Logs")
	v.shows(`red <img src=x onerror="window.hacked=1"> ␇bell <U+202E>back`)
	// A time is that of the reader, and a long line begins beside it.
	v.do(v.Zone(t.Context(), "Asia/Tokyo"))
	v.run("location.hash = '#/jobs/web'")
	v.until("!document.querySelector('.lines')")
	v.opens("#/jobs/web?logs=*", "2026-01-01 09:01:00 http[0] 01AAAAAA red")
	v.shows("2026-01-02 05:01:01 http[2] 01AAAAAA long")
	v.until(`(() => {
		const long = [...document.querySelectorAll('.lines div')].at(-1)
		return long.getClientRects()[0].height > 30 &&
			long.querySelector('.from').getClientRects()[0].top === long.querySelector('.text').getClientRects()[0].top
	})()`)
	v.shows("303 lines")
	v.until("document.querySelectorAll('.lines .from').length === 303 && window.hacked === undefined")
	v.run("document.querySelector('.logs').scrollIntoView()")
	v.shoot("logs-all")
	v.fill("input[placeholder^=search]", "LINE 29")
	v.shows("11 of 303 lines")
	var shown int
	v.do(v.Eval(t.Context(), "[...document.querySelectorAll('.lines div')].filter(e => e.getClientRects().length).length",
		&shown))
	if shown != 11 {
		t.Errorf("%d lines are shown", shown)
	}
}

// Logs that are gone are said to be, and not asked for again and again.
func testLogsGone(t *testing.T, c *cluster, v *tab) {
	c.errors["/v1/instances/01AAAAAAAAAAAAAAAAAAAAAAAA/logs"] = model.Refuse(model.CodeNotFound, "the logs are gone")
	v.opens("#/instances/01AAAAAAAAAAAAAAAAAAAAAAAA?logs=1", "the logs are gone")
	time.Sleep(3 * time.Second)
	if n := c.count("/v1/instances/01AAAAAAAAAAAAAAAAAAAAAAAA/logs"); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// An instance tells its life in order, with reasons, and what it uses.
func testInstance(_ *testing.T, c *cluster, v *tab) {
	event := func(n int, kind, data string) string {
		return fmt.Sprintf(`{"id":"%d.0","type":"instance.%s","subject":"instance/01AAAAAAAAAAAAAAAAAAAAAAAA",`+
			`"time":"2026-01-01T00:00:%02dZ","index":%d,"cause":"user","actor":"agent:n1","data":%s}`+"\n", n, kind, n, n, data)
	}
	c.answers["/v1/events"] = event(1, "allocated", `{"node":"1","after":"pending","slot":"0"}`) +
		event(2, "status_changed", `{"before":"pending","after":"booting","node":"1"}`) +
		event(3, "status_changed", `{"before":"booting","after":"ready","node":"1"}`) +
		event(4, "status_changed", `{"before":"ready","after":"unready","node":"1","reason":"exit code 3"}`) +
		event(5, "restarted", `{"node":"1","restarts":"1","reason":"exit code 3"}`)
	c.answers["/v1/instances/01AAAAAAAAAAAAAAAAAAAAAAAA/stats"] = `{"id":"01AAAAAAAAAAAAAAAAAAAAAAAA","use":{
		"at":"2026-01-01T00:00:00Z","source":"cgroup","uptime":"2m","cpu":{"seconds":3,"cores":0.05,"interval":"1s"},
		"memory":{"bytes":33554432,"peak_bytes":40000000,"limit_bytes":67108864},
		"processes":{"count":2,"threads":3,"threads_limit":null},
		"disk":{"bytes":4096,"at_least":false,"limit_bytes":null},"notes":[]}}`
	v.opens("#/instances/01AAAAAAAAAAAAAAAAAAAAAAAA", "Its life")
	v.shows("placed on n1")
	v.until(`/placed on n1[^]*booting[^]*ready[^]*unready: exit code 3[^]*started again: exit code 3[^]*restarts 1/.test(
		document.querySelector('.life')?.innerText)`)
	v.shows("32 MiB of 64 MiB")
	v.shows("50 of 100 shares")
	v.shows("outspan exec -it 01AAAAAAAAAAAAAAAAAAAAAAAA -- sh")
	before := c.count("/v1/instances/01AAAAAAAAAAAAAAAAAAAAAAAA/stats")
	time.Sleep(2 * time.Second)
	if n := c.count("/v1/instances/01AAAAAAAAAAAAAAAAAAAAAAAA/stats"); n > before+1 {
		v.t.Errorf("its use was asked for %d times in 2 s", n-before)
	}
}

// Events are counted over time. Older ones come on request, new ones without reading all again.
func testEvents(t *testing.T, c *cluster, v *tab) {
	var asked []string
	v.served.cfg.Forward = func(ctx context.Context, r client.ForwardedRequest) (*http.Response, error) {
		if r.Path != "/v1/events" {
			return c.forward(ctx, r)
		}
		from, to := 1000-300, 1000
		switch {
		case r.Query.Get("after") == "1000.0":
			from, to = 1000, 1001
		case r.Query.Has("after"):
			from, to = 0, 0
		case r.Query.Get("tail") == "1000":
			from = 100
		}
		c.change(func() {
			asked = append(asked, r.Query.Encode())
			var lines strings.Builder
			for n := from + 1; n <= to; n++ {
				e := map[string]any{"id": fmt.Sprintf("%d.0", n), "type": []string{"instance.status_changed",
					"node.state_changed"}[n%2],
					"subject": "job/web", "time": time.Unix(int64(1767225600+n*n/100), 0).UTC(), "actor": "me", "cause": "",
					"data": map[string]string{
						"before": "ready", "after": []string{"failed", "draining", "ready", "active"}[n%4]}}
				line, _ := json.Marshal(e)
				lines.Write(append(line, '\n'))
			}
			c.answers["/v1/events"] = lines.String()
		})
		return c.forward(ctx, r)
	}
	v.opens("#/events", "The newest 301 events") // 300, and then the one that came
	v.until("document.querySelectorAll('.rates button').length === 60")
	v.shoot("events-300")
	v.click("Load up to 1,000 events")
	v.shows("The newest 901 events")
	v.shows("No others are kept.")
	v.run("[...document.querySelectorAll('.rates button:not(:disabled)')].at(-1).click()")
	v.until("/^\\d+ of the newest 901 events/m.test(document.body.innerText)")
	v.click("All times")
	// The newest id goes with each further read, and another number of events is read anew.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		var all string
		c.change(func() { all = strings.Join(asked, "\n") + "\n" })
		last := strings.Index(all, "after=1001.0&follow=false&tail=1000\n")
		if anew := strings.Index(all, "\nfollow=false&tail=1000\n"); last >= 0 {
			if anew < 0 || anew > last || !strings.Contains(all[:anew+1], "after=1000.0&follow=false&tail=300\n") {
				t.Errorf("asked\n%s", all)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("asked\n%s", all)
		}
	}
}
