package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/model"
)

// If the reason of a stop contains an id, the output says in words what the id means. Other reasons are shown
// unchanged.
func TestReasonsAreWords(t *testing.T) {
	const drain = "01KAZZZZZZZZZZZZZZZZZZZZZZ"
	for _, tt := range []struct {
		cause        model.Cause
		reason, want string
	}{
		{"", "crash_loop", "crash_loop"},
		{model.CauseNodeDraining, drain, "drain " + drain},
		{model.CauseNodeDraining, drain + "; no replacement came", "drain " + drain + "; no replacement came"},
		{model.CauseNodeDraining, "exited", "exited"},
		{model.CauseDrainTimeout, "budget bypassed: " + drain, "budget bypassed: drain " + drain + " is out of time"},
		{model.CausePreempted, "3k9f2m", "makes room for instance 3k9f2m"},
		{model.CauseScaleDown, "its grace is over", "its grace is over"},
	} {
		if got := reasonText(api.Instance{StopCause: tt.cause, Reason: tt.reason}); got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.cause, tt.reason, got, tt.want)
		}
	}
}

// The end of a program is shown with its exit code. While a job is followed, the logs are named too.
func TestReasonsHaveExitCodes(t *testing.T) {
	seven := 7
	i := api.Instance{ID: "3k9f2m", Desired: model.DesiredRunning, Reason: "exited", ExitCode: &seven}
	if got := reasonText(i); got != "exited (exit code 7)" {
		t.Errorf("%q", got)
	}
	if got := troubleOf([]api.Instance{i}); got != "1 not well: exited (exit code 7), see: outspan logs 3k9f2m" {
		t.Errorf("%q", got)
	}
	i.Reason = "check_failed: alive: no answer"
	if got := reasonText(i) + "; " + troubleOf([]api.Instance{i}); got != i.Reason+"; 1 not well: "+i.Reason {
		t.Errorf("%q", got)
	}
}

// An event shows why a status changed, even without -o wide.
func TestEventsSayWhy(t *testing.T) {
	data := map[string]string{"before": "ready", "after": "failed", "reason": "fenced"}
	e := api.Event{Type: model.EventStatus, Data: data}
	if got := whyChanged(e); got != "ready -> failed (fenced)" {
		t.Errorf("got %q", got)
	}
	data = map[string]string{"before": "draining", "after": "failed", "reason": "the deadline passed"}
	if got := whyChanged(api.Event{Type: model.EventDrainPhase,
		Data: data}); got != "draining -> failed (the deadline passed)" {
		t.Errorf("got %q", got)
	}
	data = map[string]string{"before": "s1", "after": "s2", "server": "01B", "term": "7"}
	if got := whyChanged(api.Event{Type: model.EventLeader, Data: data}); got != "s1 -> s2 (term 7)" {
		t.Errorf("got %q", got)
	}
	if got := whyChanged(api.Event{Type: model.EventSettings,
		Data: map[string]string{"offline_after": "30s -> 1m"}}); got != "offline_after=30s -> 1m" {
		t.Errorf("got %q", got)
	}
}

// blockedDrain returns a drain of one node. The parameter many is the number of its instances whose replacements fit
// nowhere, and also the number of its instances with local volumes.
func blockedDrain(many int) api.Drain {
	n := api.DrainNode{Node: "n1", Phase: model.PhaseDraining, Turn: true}
	add := func(id model.InstanceID, b api.DrainBlocker) {
		b.Instance = id
		n.Blockers = append(n.Blockers, b)
		n.Remaining = append(n.Remaining,
			api.DrainRemaining{Instance: id, Class: model.Stateless, State: "ready", Blocker: b.Code})
	}
	for i := range many {
		add(model.InstanceID(fmt.Sprintf("web%04d", i)),
			api.DrainBlocker{Code: "replacement_unschedulable:no_capacity_memory", Message: "its replacement fits nowhere",
				Unblock: "add a node"})
		id := fmt.Sprintf("pg%05d", i)
		add(model.InstanceID(id), api.DrainBlocker{
			Code: model.CodeVolumeLocal, Volume: model.NewVolumeID("db/pg", i, "data"),
			Message: fmt.Sprintf("instance %s holds the local volume db/pg/%d/data", id, i),
			Unblock: fmt.Sprintf("outspan volume migrate db/pg/%d/data --to NODE", i),
		})
	}
	return api.Drain{ID: "d1", Phase: model.PhaseDraining, Nodes: []api.DrainNode{n}}
}

// If many instances of a drain are blocked for the same two reasons, each reason is printed only once. This holds while
// the drain is followed, when the drain fails, and on the page of the drain.
func TestBlockedDrainIsNoWall(t *testing.T) {
	d := blockedDrain(200)
	news := drainNews(nil, &d)
	later := blockedDrain(220)
	more := drainNews(&d, &later)
	ended := later
	ended.Phase, ended.Nodes = model.PhaseFailed,
		[]api.DrainNode{{Node: "n1", Phase: model.PhaseFailed, Turn: true, LastError: "said below"}}
	failed := drainNews(&later, &ended)
	count := func(lines []string, text string) int { return strings.Count(strings.Join(lines, "\n"), text) }
	if len(news) != 3 ||
		count(news,
			"200 instances (web0000, web0001, web0002 and 197 more): replacement_unschedulable:no_capacity_memory: its "+
				"replacement fits nowhere; add a node") != 1 {
		t.Errorf("blocked:\n%s", strings.Join(news, "\n"))
	}
	if count(news, "outspan volume migrate VOLUME --to NODE") != 1 || len(more) != 0 {
		t.Errorf("blocked:\n%s\nand when more instances have the same reasons:\n%s", strings.Join(news, "\n"),
			strings.Join(more, "\n"))
	}
	if len(failed) != 4 || count(failed, "said below") != 0 || count(failed, "blocked by 220 instances") != 2 {
		t.Errorf("failed:\n%s", strings.Join(failed, "\n"))
	}
	a := newApp(daemon.Program{Version: "dev"})
	page := func(wide bool) string {
		p := &term.Page{Wide: wide}
		a.drainPage(p, d)
		return p.String()
	}
	if lines := strings.Count(page(false), "\n"); lines > 25 {
		t.Errorf("its page has %d lines:\n%s", lines, page(false))
	}
	if lines := strings.Count(page(true), "\n"); lines < 800 || !strings.Contains(page(true), "pg00199") {
		t.Errorf("with -o wide its page has %d lines, and not each instance", lines)
	}
}

// While a drain is followed, a reason in which only a time has changed is not printed again.
func TestTimesAreNoNews(t *testing.T) {
	at := func(message string) api.Drain {
		return api.Drain{
			Nodes: []api.DrainNode{
				{Node: "n1",
					Blockers: []api.DrainBlocker{
						{Code: model.CodeBudgetRate, Instance: model.InstanceID(message), Message: message}}}}}
	}
	before, after := at("db may lose 1 per 10m; the next is allowed in 9m"),
		at("db may lose 1 per 10m; the next is allowed in 8m30s")
	if news := drainNews(&before, &after); len(news) != 0 {
		t.Errorf("news: %q", news)
	}
}

// A forecast of many instances sums up those with the same outcome. Its last line has the number of instances by
// outcome, and about how long the drain takes.
func TestForecastSums(t *testing.T) {
	var r api.DrainReply
	for i := range 15 {
		f := api.DrainForecast{Node: "n1", Instance: model.InstanceID(fmt.Sprintf("web%04d", i)), Group: "web/http",
			Action: model.ActionMove, Target: "n2", After: 9 * model.Second}
		if i >= 12 {
			f.Action, f.Target, f.Blocker, f.Message, f.After = model.ActionWait, "", model.CodeBudgetMinReady,
				"web/http must keep 9", 40*model.Second
		}
		r.Forecast = append(r.Forecast, f)
	}
	show := func(wide bool) string {
		p := &term.Page{Wide: wide}
		drainReplyPage(p, r, &drainFlags{})
		return p.String()
	}
	if text := show(false); !strings.HasSuffix(text, "\n12 move, 3 wait, about 40s\n") ||
		strings.Count(text, "web/http must keep 9") != 1 || !strings.Contains(text, "web0000") {
		t.Error(text)
	}
	for range 3 {
		r.Forecast = append(r.Forecast, r.Forecast...)
	}
	if text := show(false); strings.Contains(text, "web0000") || strings.Count(text, "\n") > 12 ||
		!strings.Contains(text, "96 ") {
		t.Error(text)
	}
	if text := show(true); strings.Count(text, "\n") < 120 {
		t.Error(text)
	}
}

// If several volumes keep instances on a node, a forecast names the volumes in one line, as a running drain does.
func TestForecastSumsVolumes(t *testing.T) {
	var r api.DrainReply
	var blockers []api.DrainBlocker
	for i := range 5 {
		id, volume := model.InstanceID(fmt.Sprintf("db%04d", i)), model.VolumeID(fmt.Sprintf("db/main/%d/rows", i))
		f := api.DrainForecast{
			Node: "n1", Instance: id, Group: "db/main", Action: model.ActionWait, Blocker: model.CodeVolumeLocal,
			Volume: volume, Never: true,
			Message: fmt.Sprintf("instance %s holds the local volume %s", id, volume),
			Unblock: "outspan volume migrate " + string(volume),
		}
		r.Forecast = append(r.Forecast, f)
		blockers = append(blockers,
			api.DrainBlocker{Code: f.Blocker, Instance: id, Volume: volume, Message: f.Message, Unblock: f.Unblock})
	}
	p := &term.Page{}
	drainReplyPage(p, r, &drainFlags{})
	text := p.String()
	if n := strings.Count(text, string(model.CodeVolumeLocal)+": "); n != 1 ||
		!strings.Contains(text, "5 volumes (db/main/0/rows, ") {
		t.Errorf("the reason stands there %d times:\n%s", n, text)
	}
	if running := sumText(sumsOf(blockers)[0]); !strings.Contains(text, running) {
		t.Errorf("a drain that runs says %q, its forecast\n%s", running, text)
	}
}

// The last line of a drain distinguishes moved instances from those that were stopped without a replacement. A roll
// says how many of its nodes are done and how many failed.
func TestCountsAreTrue(t *testing.T) {
	d := api.Drain{ID: "d1", Phase: model.PhaseDrained,
		Nodes: []api.DrainNode{{Node: "n1", Phase: model.PhaseDrained, Moved: 7, Stopped: 6}}}
	if news := drainNews(nil, &d); news[len(news)-1] != "drain d1 drained: 1 moved, 6 stopped without a replacement" {
		t.Errorf("news: %q", news)
	}
	d.Nodes = []api.DrainNode{{Node: "n1", Phase: model.PhaseDrained, Moved: 7, Acked: 2}}
	if news := drainNews(nil, &d); news[len(news)-1] != "drain d1 drained: 7 moved, 2 stay as was acknowledged" {
		t.Errorf("news: %q", news)
	}
	r := &roll{steps: []rollStep{{State: "done"}, {State: "failed"}}}
	if got := r.left(); got != "1 of 2 done, 1 failed" {
		t.Errorf("a roll of which one node failed: %s", got)
	}
}

// If a drain failed or was canceled on some nodes, the hint names these nodes.
func TestEndedDrainNamesItsNodes(t *testing.T) {
	for _, phase := range []model.DrainPhase{model.PhaseFailed, model.PhaseCanceled} {
		d := api.Drain{ID: "d1", Phase: phase,
			Nodes: []api.DrainNode{{Node: "n1", Phase: model.PhaseDrained}, {Node: "n2", Phase: phase},
				{Node: "n3", Phase: phase}}}
		if hint := describe(drainEnded(d)).Hint; !strings.HasSuffix(hint, "outspan node uncordon n2 n3") {
			t.Errorf("%s: %s", phase, hint)
		}
	}
}

// If instances are not placed, the hint depends on the reason. The hint names the command why only if the servers have
// the job.
func TestHintOfUnplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.hcl")
	const job = "job \"web\" {\n  group \"http\" {\n    exec {\n      command = \"/bin/true\"\n    }\n  }\n}\n"
	if err := os.WriteFile(file, []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	const room, why = "they are placed when there is room", "see: outspan why web"
	for _, c := range []struct {
		code   string
		index  int
		has    []string
		hasNot []string
	}{
		{"no_capacity_memory", 0, []string{room}, []string{why}},
		{"no_capacity_memory", 7, []string{room, why}, nil},
		{"constraint_unmatched", 7, []string{"change the constraint", "outspan node label", why}, []string{room}},
		{"no_nodes_active", 0, []string{"outspan node ls"}, []string{room, why}},
		{"image_pull_failed", 7, []string{"the registry", "outspan job restart", why}, []string{room}},
	} {
		address := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"code":"not_found","message":"there is no job web"}`)
				return
			}
			fmt.Fprintf(w,
				`{"job":"web","index":%d,"changes":true,"groups":[{"group":"web/http","created":1,"unschedulable":1,"code":%q,"message":"no"}]}`, c.index, c.code)
		})
		_, errs, code := runHere(t, address, "job", "plan", file)
		if code != int(term.ExitNotAllPlaced) {
			t.Errorf("%s: exit code %d: %s", c.code, code, errs)
		}
		for _, text := range c.has {
			if !strings.Contains(errs, text) {
				t.Errorf("%s at %d: no %q in\n%s", c.code, c.index, text, errs)
			}
		}
		for _, text := range c.hasNot {
			if strings.Contains(errs, text) {
				t.Errorf("%s at %d: %q in\n%s", c.code, c.index, text, errs)
			}
		}
	}
}

// job scale to a count below min_ready prints that the budget keeps all instances, as job plan does. A scale to 0 does
// not print it.
func TestScaleBelowMinReady(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		const group = `{"name":"http","count":40,"exec":{"command":"/bin/true"},"budget":{"min_ready":"36"}}`
		fmt.Fprintf(w,
			`{"index":7,"changed":true,"job":{"name":"web"},"name":"web","items":[],"status":"running","spec":{"name":"web","groups":[%s]}}`, group)
	})
	for count, told := range map[string]bool{"30": true, "36": false, "0": false} {
		_, errs, code := runHere(t, address, "job", "scale", "web", count, "--dry-run")
		if code != 0 || strings.Contains(errs, "min_ready is more than the count, so it keeps all of them") != told {
			t.Errorf("scale to %s: exit code %d: %s", count, code, errs)
		}
	}
}
