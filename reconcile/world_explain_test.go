package reconcile_test

import (
	"fmt"
	"strings"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// cmdStatus prints which instances are left on the nodes of a drain, and why.
func (w *world) cmdStatus(args []string) string {
	d, ok := w.state.Drains.Get(model.DrainID(args[0]))
	if !ok {
		w.t.Fatalf("%s: no such drain", w.at)
	}
	var out strings.Builder
	for _, n := range reconcile.Explain(w.input()).Drain(d) {
		fmt.Fprintf(&out, "%s: %d left\n", n.Node, len(n.Remaining))
		for _, r := range n.Remaining {
			line := strings.TrimSpace(fmt.Sprintf("  %s %s %s %s", r.Instance, r.Class, r.State, r.Blocker))
			if r.InMoved {
				line += ", in moved"
			}
			if r.InStopped {
				line += ", in stopped"
			}
			fmt.Fprintln(&out, line)
		}
		for _, b := range n.Blockers {
			fmt.Fprintf(&out, "  blocker %s\n", blockerWords(b))
		}
	}
	return w.words(out.String())
}

func blockerWords(b model.Blocker) string {
	text := fmt.Sprintf("%s %s", b.Code, b.Instance)
	if b.Volume != "" {
		text += " volume " + string(b.Volume)
	}
	text += ": " + b.Message
	if b.Unblock != "" {
		text += " -> " + b.Unblock
	}
	return text
}

// cmdForecast prints what a drain would do, for example: forecast n1 n2 downtime=* force ignore_system
func (w *world) cmdForecast(args []string) string {
	var nodes []string
	var options model.DrainOptions
	times := false
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "downtime":
			options.AcceptDowntime = append(options.AcceptDowntime, value)
		case "force":
			options.Force = true
		case "ignore_system":
			options.IgnoreSystem = true
		case "policy":
			options.Policy = value
		case "parallel":
			options.MaxParallelNodes = number(value)
		case "times": // also prints when each instance would be gone
			times = true
		default:
			nodes = append(nodes, key)
		}
	}
	forecast, refusal := reconcile.ForecastDrain(w.input(), nodes, options)
	if refusal != nil {
		return w.must(refusal)
	}
	var out strings.Builder
	for _, f := range forecast {
		fmt.Fprintf(&out, "%s %s %s %s", f.Node, f.Instance, f.Class, f.Action)
		if f.Target != "" {
			fmt.Fprintf(&out, " to %s", f.Target)
		}
		if f.Blocker != nil {
			fmt.Fprintf(&out, " blocker %s", blockerWords(*f.Blocker))
		}
		if f.Never {
			out.WriteString(" (never by itself)")
		}
		if f.Note != "" {
			fmt.Fprintf(&out, " note: %s", f.Note)
		}
		if times {
			fmt.Fprintf(&out, " after %s", f.After)
		}
		out.WriteString("\n")
	}
	if can, blockers := reconcile.CanFinish(forecast); !can {
		fmt.Fprintf(&out, "can't finish: %d blockers\n", len(blockers))
	}
	return w.words(out.String())
}

func (w *world) cmdWhy(args []string) string {
	object := args[0]
	if id, ok := w.ids[object]; ok || strings.Contains(object, "@") {
		if !ok {
			id = w.id(object)
		}
		object = string(id)
	}
	why, refusal := reconcile.Explain(w.input()).Why(object)
	if refusal != nil {
		return w.must(refusal)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s\n", why.Subject, why.State)
	for _, link := range why.Chain {
		fmt.Fprintf(&out, "  %s %s %s\n", link.Actor, link.Cause, link.Text)
	}
	for _, c := range why.Considered {
		if c.ExcludedBy != "" {
			fmt.Fprintf(&out, "  node %s excluded by %s\n", c.Node, c.ExcludedBy)
		} else {
			fmt.Fprintf(&out, "  node %s scores %d\n", c.Node, c.Score)
		}
	}
	for _, b := range why.Blockers {
		fmt.Fprintf(&out, "  blocker %s\n", blockerWords(b))
	}
	fmt.Fprintf(&out, "  next: %s\n", why.Next)
	return w.words(out.String())
}

// cmdPlan prints what submitting a job would do.
func (w *world) cmdPlan(args []string) string {
	plan, refusal := reconcile.PlanJob(w.input(), w.parseJob(args))
	if refusal != nil {
		return w.must(refusal)
	}
	out := fmt.Sprintf("%s version %d, changes %t\n", plan.Job, plan.Version, plan.Changes)
	for _, g := range plan.Groups {
		out += fmt.Sprintf("  %s: %d created, %d destroyed, %d kept, %d unschedulable", g.Group, g.Created,
			g.Destroyed, g.Kept, g.Unschedulable)
		if g.Code != "" {
			out += fmt.Sprintf(" (%s: %s)", g.Code, g.Message)
		}
		if len(g.Preempts) > 0 {
			out += w.words(fmt.Sprintf(", stops %v", g.Preempts))
		}
		out += "\n"
	}
	return out
}

// cmdEvents prints the events since the last use of this command. If types are given, it prints only events of these
// types.
func (w *world) cmdEvents(args []string) string {
	var out strings.Builder
	for key, e := range w.state.Events.From(w.events) {
		w.events = key + 1
		if len(args) > 0 && !strings.Contains(strings.Join(args, " "), string(e.Type)) {
			continue
		}
		fmt.Fprintf(&out, "%s %s", e.Type, e.Subject)
		if e.Before != "" {
			fmt.Fprintf(&out, " %s ->", e.Before)
		}
		fmt.Fprintf(&out, " %s", e.After)
		if e.Cause != "" {
			fmt.Fprintf(&out, " (%s)", e.Cause)
		}
		if e.Data["reason"] != "" {
			fmt.Fprintf(&out, " %s", e.Data["reason"])
		}
		if e.Data["text"] != "" {
			fmt.Fprintf(&out, ", %s", e.Data["text"])
		}
		out.WriteString("\n")
	}
	return w.words(out.String())
}

// cmdStale decides on the state that the command remember kept, as an old leader would, and commits the plan to the
// present state. It prints which groups of commands the log accepted. The log should refuse groups about objects that
// have changed since.
func (w *world) cmdStale([]string) string {
	in := w.input()
	in.State = w.remembered
	var out strings.Builder
	for _, e := range reconcile.Decide(in).Entries {
		for i, r := range w.commit(e) {
			verdict := "accepted"
			if r.Refusal != nil {
				verdict = "refused: " + string(r.Refusal.Code)
			}
			var what []string
			for _, c := range e.Groups[i] {
				what = append(what, strings.TrimSuffix(w.say(c), "\n"))
			}
			fmt.Fprintf(&out, "%s: %s\n", strings.Join(what, " and "), verdict)
		}
	}
	return w.words(out.String())
}
