package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

const forecastDrains = 200

// TestForecastComesTrue checks that a forecast of a drain comes true if the drain is started and nothing else changes:
// what happens to each instance, which node its replacement gets, and what an instance waits for. The drain's phase
// becomes drained if and only if the forecast says that the drain can finish.
func TestForecastComesTrue(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(forecastDrains) {
		forecastOnce(t, seed, seen)
	}
	t.Logf("%v", seen)
	for _, want := range []string{"move", "stop_first", "stop", "leave", "waits, then goes", "never",
		"finishes", "never finishes"} {
		if seen[want] < forecastDrains/20 {
			t.Errorf("only %d times %q in %d drains prove little", seen[want], want, forecastDrains)
		}
	}
}

// fate is what happened to one instance on a node that was drained.
type fate struct {
	gone    bool         // the instance's stop began
	surged  bool         // a replacement existed when the stop began
	target  model.NodeID // where the slot's next instance was placed while the node was draining
	blocker model.Code   // what the instance waited for after the first decision; "" means nothing
	last    model.Code   // what the instance waited for most recently; "" means nothing
}

func forecastOnce(t *testing.T, seed uint64, seen map[string]int) {
	r := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(t)
	w.at = fmt.Sprintf("seed %d", seed)
	script := randomCluster(w, r)
	line := randomDrain(w, r)
	script = append(script, line)
	w.at = fmt.Sprintf("seed %d\n%s\n", seed, strings.Join(script, "\n"))
	start := w.drainCommand(strings.Fields(line)[1:])
	forecast, refusal := reconcile.ForecastDrain(w.input(), start.Nodes, start.Options)
	before := w.state
	switch got := w.apply("cli:ann", start); {
	case got != nil && got.Code == model.CodeAlreadyDraining:
		return // a node has another drain already, which ForecastDrain ignores
	case got != nil || refusal != nil:
		t.Fatalf("%s: the forecast is refused: %v, the drain: %v", w.at, refusal, got)
	}
	fates := w.followDrain(forecast, before)
	d, _ := w.state.Drains.Get(start.ID)
	if len(d.Rejected) > 0 {
		return
	}
	for _, f := range forecast {
		seen[string(f.Action)]++
		if f.Never {
			seen["never"]++
		} else if f.Action == model.ActionWait {
			seen["waits, then goes"]++
		}
		if f.Blocker != nil && f.Action == model.ActionLeave && f.Blocker.Volume != "" && fates[f.Instance].gone {
			continue // this forecast is about a copy that no instance uses, not about the instance
		}
		if wrong := disagrees(f, fates[f.Instance], start.Options); wrong != "" {
			t.Errorf("%s: forecast %s: %s\nbut %+v\n%s", w.at, w.forecastText(f), wrong,
				fates[f.Instance], w.run("show instances"))
		}
	}
	can, blockers := reconcile.CanFinish(forecast)
	seen[map[bool]string{true: "finishes", false: "never finishes"}[can]]++
	if can != (d.Phase() == model.PhaseDrained) {
		t.Errorf("%s: the forecast says can finish: %t %v, and the drain is %s\n%s%s", w.at, can, blockers, d.Phase(),
			w.run("status "+string(d.ID)), w.run("show drains"))
	}
}

// disagrees returns how the forecast for an instance differs from the instance's fate, or "" if they agree.
func disagrees(f model.Forecast, was fate, options model.DrainOptions) string {
	switch {
	case f.Action == model.ActionLeave && was.gone:
		return "it was stopped"
	case f.Action == model.ActionMove && !(was.gone && was.surged):
		return "it was not replaced before it was stopped"
	case f.Action == model.ActionStopFirst && (!was.gone || was.surged || was.target == ""):
		return "it was not stopped and then replaced"
	case f.Action == model.ActionStop && (!was.gone || was.surged):
		return "it was not just stopped"
	case f.Action == model.ActionWait && was.gone == f.Never:
		return "it can't go now"
	case f.Never && f.Blocker.Code != was.last && f.Blocker.Code != was.blocker:
		return "another reason keeps it"
	case f.Blocker != nil && f.Blocker.Code != was.blocker && options.MaxParallelNodes == 0 && !f.Never:
		return "another reason kept it at first"
	case f.Blocker == nil && f.Action == model.ActionWait:
		return "it waits for nothing"
	case f.Target != "" && options.MaxParallelNodes == 0 && was.gone && was.target != f.Target:
		return "it went elsewhere"
	}
	return ""
}

// followDrain makes the leader and the agents work until nothing happens any more. It returns the fates of the
// instances in the forecast.
func (w *world) followDrain(forecast []model.Forecast, before fsm.State) map[model.InstanceID]fate {
	fates := map[model.InstanceID]fate{}
	first := true
	deadline := w.now.Add(10 * model.Minute) // of the drain d1, if it has one
	for idle := 0; idle < 6; {
		index := w.state.Index
		drain, _ := w.state.Drains.Get("d1")
		for _, e := range reconcile.Decide(w.input()).Entries {
			for i, result := range w.commit(e) {
				if result.Refusal != nil {
					w.t.Fatalf("%s: the log refused what was planned: %v", w.at, result.Refusal)
				}
				_ = i
			}
		}
		explained := reconcile.Explain(w.input())
		for _, f := range forecast {
			fates[f.Instance] = w.fateOf(f.Instance, fates[f.Instance], before, explained, first, drain)
		}
		first = false
		w.work(nil)
		if w.state.Index != index {
			idle = 0
			continue
		}
		idle++
		w.advanceTo(deadline, []model.Duration{2 * model.Second, 11 * model.Second, 5 * model.Minute, 41 * model.Minute,
			41 * model.Minute, model.Hour}[idle-1])
	}
	return fates
}

// advanceTo advances the time by d, but not past a deadline that is still to come.
func (w *world) advanceTo(deadline model.Time, d model.Duration) {
	if to := w.now.Add(d); w.now < deadline {
		w.now = min(to, deadline)
	} else {
		w.now = to
	}
}

func (w *world) fateOf(id model.InstanceID, was fate, before fsm.State, explained *reconcile.Explanation,
	first bool, drain *fsm.Drain) fate {
	inst, kept := w.state.Instances.Get(id)
	old, _ := before.Instances.Get(id)
	if old == nil {
		return was
	}
	if !was.gone && (!kept || inst.Desired != model.DesiredRunning && inst.Status.Observed != model.ObservedLost) {
		was.gone = true
		was.surged = kept && inst.Links.ReplacedBy != ""
	}
	for next := range w.state.InstancesInSlot(old.Group, old.Slot) {
		if part, _ := drain.Node(old.Node); next.Marks.CreatedIndex > before.Index && was.target == "" &&
			part.Phase == model.PhaseDraining {
			was.target = next.Node
		}
	}
	code := model.Code("")
	if kept && inst.Status.Observed != model.ObservedStopped {
		if waiting := explained.Waiting(id); len(waiting) > 0 && drainOn(w.state, inst.Node) {
			code = waiting[0].Code
		}
	}
	if code != "" {
		was.last = code
	}
	if first {
		was.blocker = code
	}
	return was
}

func drainOn(s fsm.State, node model.NodeID) bool {
	n, _ := s.Nodes.Get(node)
	_, running := s.RunningDrain(n)
	return running
}

// randomCluster makes a cluster with a few random jobs, and often with some trouble. It returns the commands that it
// used.
func randomCluster(w *world, r *rand.Rand) []string {
	var script []string
	run := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		script = append(script, line)
		w.run(line)
	}
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	run("settings rescheduler=off offline_after=6s algorithm=%s node_drain_policy=%s", pick("spread", "binpack"),
		pick(model.DrainPolicies()...))
	nodes := 3 + r.IntN(4)
	for i := range nodes {
		run("node n%d memory=%dMiB rack=r%d", i, 300+r.IntN(900), i%3)
	}
	for i := range 2 + r.IntN(5) {
		count := 1 + r.IntN(5)
		// With not_ready=none, an unready instance is never replaced. A forecast can't know how long an instance will be
		// unready.
		line := fmt.Sprintf("run j%d main count=%d memory=%dMiB not_ready=none", i, count, 10+r.IntN(150))
		line += pick("", " class=critical", " class=batch", " class=production")
		switch r.IntN(12) {
		case 0, 1:
			line += " volume=data:replicated" + pick("", " max_down=2", " unreachable=0s")
		case 2:
			line += " volume=data"
		case 3:
			line += " exclusive"
		case 4:
			line += " role=system"
		case 5:
			line += pick(" role=probe", " role=front", " role=worker", " role=singleton")
		default:
			line += pick("", "", " order=stop_first", " order=stop_first", " wait=started", " evict=never")
		}
		if !strings.Contains(line, "max_down") {
			line += pick("", "", " max_down=1", " max_down=50%", " min_ready=1", " rate=1/10s max_down=3",
				fmt.Sprintf(" min_ready=%d blocking", count))
		}
		line += pick("", "", "", " distinct=node.id", " port=p:8080", " spread=node.label.rack",
			" constraint=node.label.rack:=:r1")
		run("%s", line)
		if r.IntN(2) == 0 {
			run("quietly settle")
		}
	}
	run("quietly settle")
	upset(w, r, run, nodes)
	return script
}

// upset causes some trouble in a cluster before the drain, or none.
func upset(w *world, r *rand.Rand, run func(string, ...any), nodes int) {
	node := fmt.Sprintf("n%d", r.IntN(nodes))
	switch r.IntN(8) {
	case 0:
		run("cordon %s", node)
	case 1:
		run("silent 7s %s", node)
		run("quietly decide")
		run("quietly settle")
	case 2, 3:
		for _, inst := range w.state.Instances.All() {
			if inst.Ready() && r.IntN(5) == 0 {
				run("report %s unready", w.names[inst.ID])
			}
		}
	case 4:
		run("drain d0 %s deadline=1m", node)
		run("quietly decide")
	}
}

// randomDrain returns the command of a drain with random nodes and options.
func randomDrain(w *world, r *rand.Rand) string {
	line := fmt.Sprintf("drain d1 %s", w.nodes[r.IntN(len(w.nodes))])
	if r.IntN(4) == 0 {
		line += fmt.Sprintf(" %s", w.nodes[r.IntN(len(w.nodes))])
	}
	if r.IntN(6) == 0 {
		line += " policy=" + model.DrainPolicies()[r.IntN(len(model.DrainPolicies()))]
	}
	options := []string{"", "", "", " downtime=*", " force", " ignore_system",
		" force_at_deadline deadline=10m", " parallel=1"}
	line += options[r.IntN(len(options))]
	if !strings.Contains(line, "deadline=") {
		line += " deadline=none"
	}
	return line
}

func (w *world) forecastText(f model.Forecast) string {
	text := fmt.Sprintf("%s %s (%s) %s", f.Node, f.Instance, f.Group, f.Action)
	if f.Target != "" {
		text += " to " + string(f.Target)
	}
	if f.Blocker != nil {
		text += " blocker " + blockerWords(*f.Blocker)
	}
	if f.Never {
		text += " (never by itself)"
	}
	return w.words(text)
}
