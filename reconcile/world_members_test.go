package reconcile_test

import (
	"fmt"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// cmdSync makes the named members report that they are in sync: sync web-db-0a ... With on or off, it sets whether
// members that become ready report by themselves that they are in sync.
func (w *world) cmdSync(args []string) string {
	for _, arg := range args {
		switch arg {
		case "on", "off":
			w.slow = arg == "off"
		default:
			w.say1(arg, "true")
		}
	}
	return ""
}

// say1 makes a member report whether its copy is in sync.
func (w *world) say1(name, inSync string) {
	inst, ok := w.state.Instances.Get(w.id(name))
	if !ok {
		w.t.Fatalf("%s: %s is gone", w.at, name)
	}
	a := w.agents[inst.Node]
	known := a.running[inst.ID]
	known.Facts = map[string]string{model.FactInSync: inSync}
	a.running[inst.ID] = known
	w.status(inst, inst.Status.Observed, "")
}

// ready reports that an instance is ready. If the instance is a member and w.slow is false, the report also says that
// the member is in sync.
func (w *world) ready(inst *fsm.Instance) {
	if _, member := w.state.MemberOf(inst); member && !w.slow {
		a := w.agents[inst.Node]
		known := a.running[inst.ID]
		known.Facts = map[string]string{model.FactInSync: "true"}
		a.running[inst.ID] = known
	}
	w.status(inst, model.ObservedReady, "")
}

// cmdCopies prints the rows of replicated volumes, and the nodes from which a policy evicts members.
func (w *world) cmdCopies([]string) string {
	var out strings.Builder
	for id, v := range w.state.Volumes.All() {
		if v.Kind == model.VolumeReplicated {
			fmt.Fprintln(&out, strings.TrimSpace(fmt.Sprintf("%s %s", id, map[bool]string{true: "held"}[v.Held])))
		}
	}
	for id := range w.state.Nodes.All() {
		if w.state.AutoEvicting(id) {
			fmt.Fprintf(&out, "%s is auto-evicting\n", id)
		}
	}
	return out.String()
}
