package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/model"
)

// blockedDrain is a drain of a node with so many instances that fit nowhere, and as many with local volumes.
func blockedDrain(many int) api.Drain {
	n := api.DrainNode{Node: "n1", Phase: model.PhaseDraining, Turn: true}
	add := func(id model.InstanceID, b api.DrainBlocker) {
		b.Instance = id
		n.Blockers = append(n.Blockers, b)
		n.Remaining = append(n.Remaining, api.DrainRemaining{Instance: id, Class: model.Stateless, State: "ready", Blocker: b.Code})
	}
	for i := range many {
		add(model.InstanceID(fmt.Sprintf("web%04d", i)), api.DrainBlocker{Code: "replacement_unschedulable:no_capacity_memory", Message: "its replacement fits nowhere", Unblock: "add a node"})
		id := fmt.Sprintf("pg%05d", i)
		add(model.InstanceID(id), api.DrainBlocker{
			Code: model.CodeVolumeLocal, Volume: model.NewVolumeID("db/pg", i, "data"), Message: fmt.Sprintf("instance %s holds the local volume db/pg/%d/data", id, i),
			Unblock: fmt.Sprintf("outspan volume migrate db/pg/%d/data --to NODE", i),
		})
	}
	return api.Drain{ID: "d1", Phase: model.PhaseDraining, Nodes: []api.DrainNode{n}}
}

// proves that a drain of many instances that are blocked for two reasons tells each reason once: while it is followed,
// when it fails, and when it is looked at.
func TestBlockedDrainIsNoWall(t *testing.T) {
	d := blockedDrain(200)
	news := drainNews(nil, &d)
	later := blockedDrain(220)
	more := drainNews(&d, &later)
	ended := later
	ended.Phase, ended.Nodes = model.PhaseFailed, []api.DrainNode{{Node: "n1", Phase: model.PhaseFailed, Turn: true, LastError: "said below"}}
	failed := drainNews(&later, &ended)
	count := func(lines []string, text string) int { return strings.Count(strings.Join(lines, "\n"), text) }
	if len(news) != 3 || count(news, "200 instances (web0000, web0001, web0002 and 197 more): replacement_unschedulable:no_capacity_memory: its replacement fits nowhere; add a node") != 1 {
		t.Errorf("blocked:\n%s", strings.Join(news, "\n"))
	}
	if count(news, "outspan volume migrate VOLUME --to NODE") != 1 || len(more) != 0 {
		t.Errorf("blocked:\n%s\nand when more instances have the same reasons:\n%s", strings.Join(news, "\n"), strings.Join(more, "\n"))
	}
	if len(failed) != 4 || count(failed, "said below") != 0 || count(failed, "blocked by 220 instances") != 2 {
		t.Errorf("failed:\n%s", strings.Join(failed, "\n"))
	}
	a := newApp(daemon.Program{Version: "dev"})
	page := func(wide bool) string {
		p := &page{wide: wide}
		a.drainPage(p, d)
		return p.b.String()
	}
	if lines := strings.Count(page(false), "\n"); lines > 25 {
		t.Errorf("its page has %d lines:\n%s", lines, page(false))
	}
	if lines := strings.Count(page(true), "\n"); lines < 800 || !strings.Contains(page(true), "pg00199") {
		t.Errorf("with -o wide its page has %d lines, and not each instance", lines)
	}
}

// proves that the time left and the counts of a reason are no news while a drain is followed.
func TestTimesAreNoNews(t *testing.T) {
	at := func(message string) api.Drain {
		return api.Drain{Nodes: []api.DrainNode{{Node: "n1", Blockers: []api.DrainBlocker{{Code: model.CodeBudgetRate, Instance: model.InstanceID(message), Message: message}}}}}
	}
	before, after := at("db may lose 1 per 10m; the next is allowed in 9m"), at("db may lose 1 per 10m; the next is allowed in 8m30s")
	if news := drainNews(&before, &after); len(news) != 0 {
		t.Errorf("news: %q", news)
	}
}

// proves that a forecast of many instances sums up those that fare alike, and ends with what happens to how many and
// about how long that takes.
func TestForecastSums(t *testing.T) {
	var r api.DrainReply
	for i := range 15 {
		f := api.DrainForecast{Node: "n1", Instance: model.InstanceID(fmt.Sprintf("web%04d", i)), Group: "web/http", Action: model.ActionMove, Target: "n2", After: 9 * model.Second}
		if i >= 12 {
			f.Action, f.Target, f.Blocker, f.Message, f.After = model.ActionWait, "", model.CodeBudgetMinReady, "web/http must keep 9", 40*model.Second
		}
		r.Forecast = append(r.Forecast, f)
	}
	show := func(wide bool) string {
		p := &page{wide: wide}
		p.drainReply(r, &drainFlags{})
		return p.b.String()
	}
	if text := show(false); !strings.HasSuffix(text, "\n12 move, 3 wait, about 40s\n") || strings.Count(text, "web/http must keep 9") != 1 || !strings.Contains(text, "web0000") {
		t.Error(text)
	}
	for range 3 {
		r.Forecast = append(r.Forecast, r.Forecast...)
	}
	if text := show(false); strings.Contains(text, "web0000") || strings.Count(text, "\n") > 12 || !strings.Contains(text, "96 ") {
		t.Error(text)
	}
	if text := show(true); strings.Count(text, "\n") < 120 {
		t.Error(text)
	}
}

// A forecast names the volumes that keep instances on a node together, in one line, as a drain that runs does.
func TestForecastSumsVolumes(t *testing.T) {
	var r api.DrainReply
	var blockers []api.DrainBlocker
	for i := range 5 {
		id, volume := model.InstanceID(fmt.Sprintf("db%04d", i)), model.VolumeID(fmt.Sprintf("db/main/%d/rows", i))
		f := api.DrainForecast{
			Node: "n1", Instance: id, Group: "db/main", Action: model.ActionWait, Blocker: model.CodeVolumeLocal, Volume: volume, Never: true,
			Message: fmt.Sprintf("instance %s holds the local volume %s", id, volume), Unblock: "outspan volume migrate " + string(volume),
		}
		r.Forecast = append(r.Forecast, f)
		blockers = append(blockers, api.DrainBlocker{Code: f.Blocker, Instance: id, Volume: volume, Message: f.Message, Unblock: f.Unblock})
	}
	p := &page{}
	p.drainReply(r, &drainFlags{})
	text := p.b.String()
	if n := strings.Count(text, string(model.CodeVolumeLocal)+": "); n != 1 || !strings.Contains(text, "5 volumes (db/main/0/rows, ") {
		t.Errorf("the reason stands there %d times:\n%s", n, text)
	}
	if running := sumText(sumsOf(blockers)[0]); !strings.Contains(text, running) {
		t.Errorf("a drain that runs says %q, its forecast\n%s", running, text)
	}
}

// A drain does not count instances as moved that were only stopped, and a roll counts the nodes that are done.
func TestCountsAreTrue(t *testing.T) {
	d := api.Drain{ID: "d1", Phase: model.PhaseDrained, Nodes: []api.DrainNode{{Node: "n1", Phase: model.PhaseDrained, Moved: 7, Stopped: 6}}}
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

// proves that the hint of a drain that ended badly names the nodes that did.
func TestEndedDrainNamesItsNodes(t *testing.T) {
	for _, phase := range []model.DrainPhase{model.PhaseFailed, model.PhaseCanceled} {
		d := api.Drain{ID: "d1", Phase: phase, Nodes: []api.DrainNode{{Node: "n1", Phase: model.PhaseDrained}, {Node: "n2", Phase: phase}, {Node: "n3", Phase: phase}}}
		if hint := describe(drainEnded(d)).Hint; !strings.HasSuffix(hint, "outspan node uncordon n2 n3") {
			t.Errorf("%s: %s", phase, hint)
		}
	}
}
