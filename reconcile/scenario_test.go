package reconcile_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios print into their files")

// TestScenarios runs every scenario in testdata. A scenario is a list of steps separated by empty lines. A step is some
// lines of commands and, if they print anything, "----" and their output. After every entry fsm.Check and fsm.CheckStep
// must find nothing. The commands are listed in world_test.go.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	var out strings.Builder
	for i, step := range strings.Split(strings.TrimRight(string(data), "\n"), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		input, want, asserted := strings.Cut(step+"\n", "----\n")
		var printed strings.Builder
		for _, line := range strings.Split(strings.TrimRight(input, "\n"), "\n") {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				w.at = fmt.Sprintf("%s: %s", filepath.Base(file), line)
				printed.WriteString(w.run(line))
			}
		}
		out.WriteString(input)
		if asserted || printed.Len() > 0 {
			out.WriteString("----\n" + printed.String())
		}
		if !*rewrite && printed.String() != want {
			t.Errorf("%s: other output; if it is right: go test ./reconcile -run TestScenarios -rewrite\n%s%s", file, input,
				cmp.Diff(want, printed.String()))
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// world is a simulated cluster that text commands control. It has a state, the leader's evidence, and agents that carry
// out assignments.
type world struct {
	t     fatal
	at    string // the current line of the test, or all its lines so far; for error messages
	state fsm.State
	now   model.Time
	live  map[model.NodeID]fsm.Liveness
	seen  reconcile.Cache

	followed reconcile.Cache // gets every written row, as the cache of a rehearsal does

	agents map[model.NodeID]*agentSim
	names  map[model.InstanceID]string // web-http-0a: job, group, slot, and a letter for each instance of the slot
	ids    map[string]model.InstanceID
	nodes  []model.NodeID
	specs  map[model.JobName]model.JobSpec
	quiet  bool // entries are not checked, and instances get no names

	unchecked bool // like quiet, but instances have names

	freshMoves bool // the rescheduler has begun a move since the test last recorded where all instances are
	slow       bool // members that become ready don't report that they are in sync
	term       uint64
	hooks      map[model.InstanceID]hookOutcome

	registry map[model.NodeID]string // what a registry answers to a node, and to all ("") : see cmdRegistry

	events     fsm.EventKey // the first event that was not shown yet
	remembered fsm.State
}

// agentSim is an agent with its instances. The instances keep running during an outage of the node, unless the node
// reboots.
type agentSim struct {
	name    string // of its node; "" if it is the id
	boot    int
	running map[model.InstanceID]model.InstanceStatus
	order   []model.InstanceID
	pulls   bool // it pulls images on order
	images  []model.NodeImage
	bridge  string // subnet of containers with a network of their own
	lacks   string // why it has no such network
}

// fatal is the part of *testing.T or *rapid.T that a world needs.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newWorld(t fatal) *world {
	w := &world{
		t: t, state: fsm.NewState(), live: map[model.NodeID]fsm.Liveness{}, agents: map[model.NodeID]*agentSim{},
		specs: map[model.JobName]model.JobSpec{},
		names: map[model.InstanceID]string{}, ids: map[string]model.InstanceID{}, now: 1000, term: 1,
		hooks: map[model.InstanceID]hookOutcome{}, registry: map[model.NodeID]string{},
	}
	settings := model.DefaultSettings()
	settings.Rescheduler = "off" // tests that are about the rescheduler turn it on
	w.apply("server:s1", &fsm.ClusterInit{ID: "C1", Name: "test", Settings: settings})
	return w
}

// apply commits an entry with one group of commands. It returns the refusal, or nil if the group was applied.
func (w *world) apply(actor model.Actor, group ...fsm.Command) *model.Error {
	w.t.Helper()
	results := w.commit(fsm.Entry{Format: 1, Actor: actor, Groups: [][]fsm.Command{group}})
	return results[0].Refusal
}

func (w *world) commit(e fsm.Entry) []fsm.Result {
	w.t.Helper()
	before := w.state
	e.Format, e.At, e.Wall = model.CurrentFormat, w.now, int64(w.now)+1_700_000_000_000
	if data, err := fsm.EncodeEntry(e); err != nil {
		w.t.Fatalf("%s: the log can't hold what was planned: %v", w.at, err)
	} else if len(data) > 300<<10 && len(e.Groups) > 1 {
		w.t.Fatalf("%s: an entry of %d groups has %d bytes", w.at, len(e.Groups), len(data))
	}
	after, results, written := before.ApplyNaming(before.Index+1, w.term, e)
	w.state = after
	w.followed.Follow(written)
	if w.quiet {
		return results
	}
	for id, inst := range after.Instances.All() {
		if _, known := w.names[id]; !known {
			w.name(inst)
		}
	}
	if w.unchecked {
		return results
	}
	if err := fsm.Check(after); err != nil {
		w.t.Fatalf("%s: %s", w.at, w.words(err.Error()))
	}
	if err := fsm.CheckStep(before, after); err != nil {
		w.t.Fatalf("%s: %s", w.at, w.words(err.Error()))
	}
	return results
}

func (w *world) name(inst *fsm.Instance) {
	base := strings.ReplaceAll(string(inst.Group), "/", "-") + fmt.Sprintf("-%d", inst.Slot)
	for letter := 'a'; ; letter++ {
		name := base + string(letter)
		if _, taken := w.ids[name]; !taken {
			w.names[inst.ID], w.ids[name] = name, inst.ID
			return
		}
	}
}

// words replaces the ids of instances in a text with the instances' names.
func (w *world) words(text string) string {
	for id, name := range w.names {
		text = strings.ReplaceAll(text, string(id), name)
	}
	return text
}

func (w *world) must(refusal *model.Error) string {
	if refusal == nil {
		return ""
	}
	return w.words(fmt.Sprintf("refused: %s: %s\n", refusal.Code, refusal.Message))
}

func (w *world) input() reconcile.Input {
	return reconcile.Input{State: w.state, Live: w.live, Now: w.now, Term: w.term}
}

// decide makes one decision and commits its plan. It returns a description of the plan.
func (w *world) decide() string {
	w.t.Helper()
	plan := reconcile.Decide(w.input())
	var out strings.Builder
	for _, e := range plan.Entries {
		for i, r := range w.commit(e) {
			for _, c := range e.Groups[i] {
				out.WriteString(w.say(c))
			}
			if r.Refusal != nil {
				w.t.Fatalf("%s: the log refused what was planned: %s: %s", w.at, w.words(fmt.Sprint(e.Groups[i])),
					w.words(r.Refusal.Error()))
			}
		}
	}
	for _, r := range plan.Refused {
		out.WriteString(w.words("blocked: " + r.String() + "\n"))
	}
	if plan.Wake != model.Never {
		fmt.Fprintf(&out, "wake in %s\n", plan.Wake.Sub(w.now))
	}
	return out.String()
}

// say describes a command of the leader.
func (w *world) say(c fsm.Command) string {
	text := ""
	switch c := c.(type) {
	case *fsm.InstancePlace:
		text = fmt.Sprintf("place %s on %s (%s)", c.ID, c.Node, c.Cause)
		if c.Replaces != "" {
			text = fmt.Sprintf("place %s on %s for %s (%s)", c.ID, c.Node, c.Replaces, c.Cause)
		}
		if c.Version > 1 {
			text += fmt.Sprintf(" v%d", c.Version)
		}
		if len(c.Awaits) > 0 {
			text += fmt.Sprintf(" when %v have stopped", c.Awaits)
		}
	case *fsm.ImageWant:
		text = fmt.Sprintf("want %s/%d v%d on %s (%s)", c.Group, c.Slot, c.Version, c.Node, c.Cause)
		if c.After != "" {
			text += " after " + w.names[c.After]
		}
		if c.Bare {
			text += " without room"
		}
	case *fsm.ImageDrop:
		text = strings.TrimSpace(fmt.Sprintf("drop %s/%d %s", c.Group, c.Slot, c.Failed))
	case *fsm.InstanceStop:
		text = fmt.Sprintf("stop %s (%s)", c.ID, c.Cause)
		if c.Bypass {
			text += " bypassing the budget"
		}
	case *fsm.InstancePrepare:
		text = fmt.Sprintf("prepare %s (%s)", c.ID, c.Cause)
	case *fsm.InstanceRelease:
		text = strings.TrimSuffix(fmt.Sprintf("release %s: %s", c.ID, c.Failure), ": ")
	case *fsm.InstanceKill:
		text = fmt.Sprintf("kill %s", c.ID)
	case *fsm.InstanceMove:
		text = fmt.Sprintf("move %s to %s (%s, gain %d)", c.ID, c.Target, c.Cause, c.Gain)
	case *fsm.InstanceMark:
		text = fmt.Sprintf("unmark %s", c.ID)
		if c.Requested {
			text = fmt.Sprintf("mark %s (%s)", c.ID, c.Cause)
		}
	case *fsm.DrainTurn:
		text = fmt.Sprintf("turn %s %s", c.ID, c.Node)
	case *fsm.DrainEnd:
		text = strings.TrimSuffix(fmt.Sprintf("%s %s %s: %s", c.ID, c.Node, c.Phase, c.LastError), ": ")
	case *fsm.TransferStep:
		text = sayTransfer(c)
	case *fsm.NodeHealth:
		text = fmt.Sprintf("%s %s: %s", c.ID, c.Health, c.Reason)
	case *fsm.HoldSet:
		if c.Calm != nil {
			return fmt.Sprintf("hold calm %t\n", *c.Calm)
		}
		text = strings.TrimSuffix(fmt.Sprintf("hold %t: %s", c.Active, c.Reason), ": ")
	case *fsm.DeploymentStep:
		text = strings.TrimSuffix(fmt.Sprintf("deployment %s %s: %s", c.ID, c.Status, c.Reason), ": ")
	case *fsm.DeploymentWait:
		text = fmt.Sprintf("deployment %s goes on", c.ID)
		if c.Waiting {
			text = fmt.Sprintf("deployment %s waits", c.ID)
		}
	case *fsm.JobRevert:
		text = fmt.Sprintf("revert %s to version %d", c.Job, c.Version)
	default:
		text = fmt.Sprintf("%T", c)
	}
	return w.words(text) + "\n"
}
