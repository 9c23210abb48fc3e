package reconcile_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// hookOutcome is what the hook of an instance does in the next preparations.
type hookOutcome struct {
	silent bool     // the agent never reports a result
	fails  string   // the message with which the hook fails; "" means that it succeeds
	facts  []string // the facts that the instance has after the hook, such as leader=false
}

// roleVocabulary returns the commands for facts and hooks.
func roleVocabulary() map[string]func(*world, []string) string {
	return map[string]func(*world, []string) string{
		// facts db-main-0a leader=true in_sync=true: the instance's role check reports these facts from now on, and no
		// others; without any facts, all are withdrawn
		"facts": (*world).cmdFacts,
		// hook db-main-0a fails it is busy: the hook fails with this message; hook db-main-0a silent: the agent reports no
		// result; hook db-main-0a leader=false: the hook succeeds, and the instance has these facts afterwards
		"hook": func(w *world, a []string) string {
			id, o := w.id(a[0]), hookOutcome{}
			switch {
			case len(a) > 1 && a[1] == "fails":
				o.fails = strings.Join(a[2:], " ")
			case len(a) > 1 && a[1] == "silent":
				o.silent = true
			default:
				o.facts = a[1:]
			}
			w.hooks[id] = o
			return ""
		},
		// newer n1: a heartbeat has announced facts whose report has not arrived yet
		"newer": func(w *world, a []string) string {
			n, _ := w.state.Nodes.Get(model.NodeID(a[0]))
			l := w.live[n.ID]
			l.FactsGen = n.FactsGen + 1
			w.live[n.ID] = l
			return ""
		},
		// older n1: the leader has heard no heartbeat that announced the facts of the last report
		"older": func(w *world, a []string) string {
			l := w.live[model.NodeID(a[0])]
			l.FactsGen = 0
			w.live[model.NodeID(a[0])] = l
			return ""
		},
		// bypass db-main-0a: an operator stops the instance despite budgets and hooks
		"bypass": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.InstanceStop{ID: w.id(a[0]), Cause: model.CauseUser, By: "ann", Bypass: true}))
		},
	}
}

// roleKey sets a key of a group that concerns its role. It returns false for all other keys.
func (w *world) roleKey(g *model.GroupSpec, key, value string) bool {
	gates := func() []string { return strings.Split(strings.ReplaceAll(value, "~", " "), ",") }
	switch key {
	case "role":
		switch g.Role = model.Role(value); g.Role {
		case model.RoleShardedData, model.RoleQuorum, model.RoleLeaderFollower:
			g.RoleCheck = &model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
		}
	case "facts":
		g.RoleCheck = &model.RoleCheckSpec{Exec: []string{value}}
	case "when": // gates with commas between them, and ~ instead of spaces
		g.Eviction.When = gates()
	case "replace_when":
		g.Replacement.When = gates()
	case "data":
		g.Replacement.Data = value
	case "hook": // hook=resign hook=resign:continue hook=resign:abort:20m
		name, failure, _ := strings.Cut(value, ":")
		failure, timeout, long := strings.Cut(failure, ":")
		hook := model.HookSpec{Name: model.HookBeforeStop, Exec: []string{"/bin/" + name},
			OnFailure: model.HookFailure(failure)}
		if long {
			hook.Timeout = duration(timeout)
		}
		g.Hooks = append(g.Hooks, hook)
	default:
		return false
	}
	return true
}

func (w *world) cmdFacts(args []string) string {
	inst, ok := w.state.Instances.Get(w.id(args[0]))
	if !ok {
		return "gone: " + args[0] + "\n"
	}
	return w.speak(inst, facts(args[1:]), nil)
}

func facts(words []string) map[string]string {
	var all map[string]string
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		if all == nil {
			all = map[string]string{}
		}
		all[name] = value
	}
	return all
}

// speak reports new facts of an instance and, unless result is nil, the result of its preparation. The report raises
// the facts generation of its node.
func (w *world) speak(inst *fsm.Instance, facts map[string]string, result *model.HookResult) string {
	n, _ := w.state.Nodes.Get(inst.Node)
	a := w.agents[inst.Node]
	status := inst.Status
	status.Generation++
	status.Facts = facts
	if result != nil {
		status.Hook = result
	}
	a.running[inst.ID] = status
	report := &fsm.NodeReport{ID: n.ID, Epoch: n.Agent.Epoch, FactsGen: n.FactsGen + 1,
		Instances: []model.InstanceStatus{status}}
	l := w.live[n.ID]
	l.FactsGen = report.FactsGen
	w.live[n.ID] = l
	return w.must(w.apply("agent:"+model.Actor(n.ID), report))
}

// prepare does what an agent does for a preparation: it runs the hook, then checks the instance's own gates if the
// eviction's cause requires that, and reports the result. It returns false if there is nothing to report.
func (w *world) prepare(inst *fsm.Instance) bool {
	seq := inst.Preparation()
	o := w.hooks[inst.ID]
	if seq == 0 || o.silent || inst.Status.Hook != nil && inst.Status.Hook.Seq == seq {
		return false
	}
	said := map[string]string{}
	for name, value := range inst.Status.Facts {
		said[name] = value
	}
	for name, value := range facts(o.facts) {
		said[name] = value
	}
	result := &model.HookResult{Seq: seq, OK: true}
	spec, _ := w.state.Policy(inst.Group)
	if o.fails != "" {
		result.OK, result.Message = false, o.fails
	}
	for _, text := range spec.Eviction.When {
		gate, _ := model.ParseGate(text)
		if refusal := gate.HoldsFor(said); refusal != nil && result.OK &&
			slices.Contains([]model.Cause{model.CauseNodeDraining, model.CauseRebalance, model.CauseAffinity},
				inst.Eviction.Cause) {
			result.OK, result.Message = false, refusal.Message
		}
	}
	w.speak(inst, said, result)
	return true
}

// showHeld prints how many units of each group's budget are in use by preparations.
func (w *world) showHeld() string {
	var out strings.Builder
	for _, g := range w.state.Groups.All() {
		fmt.Fprintf(&out, "%s ready %d, held %d\n", g.ID, g.Ready, g.Held)
	}
	return out.String()
}
