package cli

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/model"
)

// A single dash before the name of a known long flag becomes two dashes. All other arguments stay unchanged.
func TestLongFlags(t *testing.T) {
	known := func(name string) bool { return name == "json" || name == "wait" || name == "follow" }
	for given, want := range map[string]string{
		"node ls -json":            "node ls --json",
		"node ls -o json":          "node ls -o json",
		"node ls -ojson":           "node ls -ojson",
		"node cordon n1 -wait=x":   "node cordon n1 --wait=x",
		"events -f -follow":        "events -f --follow",
		"x -- -json":               "x -- -json",
		"x -":                      "x -",
		"node drain n1 -m -nojson": "node drain n1 -m -nojson",
	} {
		if got := strings.Join(longFlags(strings.Fields(given), known), " "); got != want {
			t.Errorf("longFlags(%q) = %q, want %q", given, got, want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want term.ExitCode
	}{
		{nil, 0},
		{errors.New("something"), 1},
		{term.Usage("wrong"), 2},
		{model.Refuse(model.CodeNotSupported, ""), 2},
		{model.Refuse(model.CodeForbidden, ""), 3},
		{model.Refuse(model.CodeCertificateRefused, ""), 3},
		{model.Refuse(model.CodeNotFound, ""), 4},
		{model.Refuse(model.CodeAmbiguous, ""), 4},
		{model.Refuse(model.CodeConflict, ""), 5},
		{model.Refuse(model.CodeAlreadyDraining, ""), 5},
		{model.Refuse(model.CodeRequestConflict, ""), 5},
		{model.Refuse(model.CodeNoLeader, ""), 6},
		{model.Refuse(model.CodeUnknownOutcome, ""), 6},
		{model.Refuse(model.CodeBudgetMinReady, ""), 6},
		{model.Refuse(model.CodeInternal, ""), 7},
		{term.Quiet{Code: term.ExitHasChanges}, 20},
		{model.Refuse(model.CodeNoMemory, ""), 21},
		{model.Refuse(codeNotAllPlaced, ""), 21},
		{model.Refuse(codeEndedFailed, ""), 22},
		{model.Refuse(codeWaitTimedOut, ""), 23},
		{api.NewProblem(model.Refuse(model.CodeNotFound, "")).At(7), 4},
	} {
		if got := exitOf(tt.err); got != tt.want {
			t.Errorf("exitOf(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestReport(t *testing.T) {
	err := model.Refuse(model.CodeAlreadyDraining, "node n7 is draining until 14:02").
		WithHint("cancel it with: outspan drain cancel 01J")
	for _, tt := range []struct {
		json bool
		want string
	}{
		{false,
			"error: node n7 is draining until 14:02 (already_draining)\n  next: cancel it with: outspan drain cancel 01J\n"},
		{true,
			`{"code":"already_draining","message":"node n7 is draining until 14:02","hint":"cancel it with: outspan drain cancel 01J","retryable":false,"index":42}` + "\n"},
	} {
		var b bytes.Buffer
		report(&b, api.NewProblem(err).At(42), tt.json)
		if diff := cmp.Diff(tt.want, b.String()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

func TestDrainNews(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	later := at.Add(90 * time.Second)
	blocker := api.DrainBlocker{Code: model.CodeVolumeLocal, Instance: "i1", Volume: "db/pg/0/data",
		Message: "has a local volume", Unblock: "outspan node ack-blockers n1"}
	looks := []api.Drain{
		{ID: "d", Phase: model.PhaseDraining, Nodes: []api.DrainNode{{
			Node: "n1", Phase: model.PhaseDraining, Turn: true, StartedAt: &at, Deadline: &later,
			Remaining: []api.DrainRemaining{{}, {}},
		}}},
		{ID: "d", Phase: model.PhaseDraining, Nodes: []api.DrainNode{{
			Node: "n1", Phase: model.PhaseDraining, Turn: true, StartedAt: &at, Deadline: &later, Moved: 1,
			Remaining: []api.DrainRemaining{{State: "draining", InMoved: true}, {}},
			Blockers:  []api.DrainBlocker{{Code: model.CodeStopping}, blocker},
		}}},
		{ID: "d", Phase: model.PhaseDraining, Paused: true, Nodes: []api.DrainNode{{
			Node: "n1", Phase: model.PhaseDraining, Turn: true, StartedAt: &at, Deadline: &later, Moved: 1,
			Blockers: []api.DrainBlocker{blocker},
		}}},
		{ID: "d", Phase: model.PhaseFailed, Paused: true, Nodes: []api.DrainNode{{
			Node: "n1", Phase: model.PhaseFailed, Turn: true, StartedAt: &at, EndedAt: &later, Moved: 1,
			LastError: "volume_local: i1",
		}}},
	}
	want := []string{
		"n1: draining, 2 instances, deadline 03:05:35",
		"n1: 0 moved, 1 left, 1 stopping",
		"n1: blocked: instance i1: volume db/pg/0/data: volume_local: has a local volume; outspan node ack-blockers n1",
		"paused",
		"n1: 1 moved, 0 left",
		"n1: failed after 1m30s",
		"n1:   blocked by instance i1: volume db/pg/0/data: volume_local: has a local volume; outspan node ack-blockers n1",
		"drain d failed: 1 moved",
	}
	var got []string
	var last *api.Drain
	for _, look := range looks {
		got = append(got, drainNews(last, &look)...)
		last = &look
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// An instance that stops is counted once: it remains until it is gone.
func TestDrainCountsOnce(t *testing.T) {
	stops := api.DrainRemaining{State: "draining", Blocker: model.CodeStopping, InMoved: true}
	unheard := stops // its agent has not begun the stop
	unheard.State = "ready"
	alone := api.DrainRemaining{State: "draining", Blocker: model.CodeStopping, InMoved: true, InStopped: true}
	lost := api.DrainRemaining{State: "lost", Blocker: model.CodeNodeOffline, InMoved: true}
	other := api.DrainRemaining{State: "draining", Blocker: model.CodeStopping} // not for the drain
	stays := api.DrainRemaining{State: "ready"}
	a := newApp(daemon.Program{Version: "dev"})
	for _, tt := range []struct {
		moved, stopped int
		left           []api.DrainRemaining
		status, news   string
	}{
		{2, 0, []api.DrainRemaining{stops, stays}, "1 0 2", "1 moved, 1 left, 1 stopping"},
		{2, 0, []api.DrainRemaining{stops, unheard, stays}, "0 0 3", "0 moved, 1 left, 2 stopping"},
		{2, 1, []api.DrainRemaining{alone}, "1 0 1", "1 moved, 0 left, 1 stopping"},
		{2, 1, []api.DrainRemaining{stops}, "0 1 1", "0 moved, 1 stopped without a replacement, 0 left, 1 stopping"},
		{3, 2, []api.DrainRemaining{alone}, "1 1 1", "1 moved, 1 stopped without a replacement, 0 left, 1 stopping"},
		{2, 0, []api.DrainRemaining{lost}, "1 0 1", "1 moved, 0 left, 1 stopping"},
		{0, 0, []api.DrainRemaining{other}, "0 0 1", "0 moved, 0 left, 1 stopping"},
		{4, 0, []api.DrainRemaining{other}, "4 0 1", "4 moved, 0 left, 1 stopping"},
		{2, 0, nil, "2 0 0", "2 moved, 0 left"},
	} {
		n := api.DrainNode{Node: "n1", Phase: model.PhaseDraining, Moved: tt.moved, Stopped: tt.stopped, Remaining: tt.left}
		d := api.Drain{ID: "d", Phase: model.PhaseDraining, Nodes: []api.DrainNode{n}}
		p := &term.Page{}
		a.drainPage(p, d)
		status := regexp.MustCompile(`(?m)^ *n1 +draining +(\d+) +(\d+) +(\d+)`).FindStringSubmatch(p.String())
		list := map[string]string{}
		for _, c := range a.drainColumns() {
			list[c.Head] = c.Cell(d)
		}
		if got := strings.Join(status[min(1, len(status)):], " "); got != tt.status {
			t.Errorf("drain status: %q, want %q:\n%s", got, tt.status, p)
		}
		if got := list["moved"] + " " + list["stopped"] + " " + list["remaining"]; got != tt.status {
			t.Errorf("drain ls: %q, want %q", got, tt.status)
		}
		if got := countOf(n); got != tt.news {
			t.Errorf("drain watch: %q, want %q", got, tt.news)
		}
	}
}

func TestOrderNodes(t *testing.T) {
	known := []api.Node{
		{ID: "1", Name: "a", Instances: 5, Labels: map[string]string{"rack": "r1"}},
		{ID: "2", Name: "b", Instances: 1, Labels: map[string]string{"rack": "r1"}},
		{ID: "3", Name: "c", Instances: 3, Labels: map[string]string{"rack": "r2"}},
		{ID: "4", Name: "d", Labels: map[string]string{"rack": "r1"}, Intent: model.IntentDisabled},
	}
	for _, tt := range []struct {
		named  string
		labels map[string]string
		order  string
		want   string
	}{
		{"c a b", nil, "name", "a b c"},
		{"3 1 nobody", nil, "fewest", "3 1 nobody"},
		{"b c a", nil, "most", "a c b"},
		{"", map[string]string{"rack": "r1"}, "fewest", "b a"},
	} {
		if got := strings.Join(orderNodes(known, strings.Fields(tt.named), tt.labels, tt.order), " "); got != tt.want {
			t.Errorf("orderNodes(%q, %v, %s) = %q, want %q", tt.named, tt.labels, tt.order, got, tt.want)
		}
	}
}

func TestFlagWinsOverEnvironment(t *testing.T) {
	env := func(name string) string {
		return map[string]string{"OUTSPAN_ADDR": "https://a:1, unix:///s"}[name]
	}
	for _, tt := range []struct {
		flag string
		want []string
	}{
		{"", []string{"https://a:1", "unix:///s"}},
		{"https://b:2/", []string{"https://b:2"}},
		{"/path/api.sock", []string{"unix:///path/api.sock"}},
	} {
		c := connFlags{address: tt.flag}
		got, err := c.endpoints(env)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q: -want +got\n%s", tt.flag, diff)
		}
	}
}

func TestDiffSpecs(t *testing.T) {
	before := model.JobSpec{Name: "web",
		Groups: []model.GroupSpec{{Name: "http", Count: 2, Exec: model.ExecSpec{Command: "/bin/a", Args: []string{"x"}},
			Ports: []model.PortSpec{{Name: "p"}}}}}
	after := model.JobSpec{Name: "web",
		Groups: []model.GroupSpec{
			{Name: "http", Count: 3, Exec: model.ExecSpec{Command: "/bin/a"}, Ports: []model.PortSpec{{Name: "p", Static: 80}}}}}
	diff, err := diffSpecs(&before, after.Expand())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range diff {
		got = append(got, d.text())
	}
	want := []string{"~ groups.http.count = 2 -> 3", `- groups.http.exec.args = ["x"]`,
		"+ groups.http.ports.p.static = 80"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if none, err := diffSpecs(&after, after.Expand()); err != nil || len(none) > 0 {
		t.Errorf("a spec differs from itself: %v, %v", none, err)
	}
}
