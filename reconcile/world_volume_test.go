package reconcile_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// volumeVocabulary returns the commands for volumes.
func volumeVocabulary() map[string]func(*world, []string) string {
	return map[string]func(*world, []string) string{
		// migrate t1 db/main/0/data n2 keep=1h
		"migrate": func(w *world, a []string) string {
			return w.startTransfer(fsm.TransferStart{ID: model.TransferID(a[0]), Work: model.TransferMigrate,
				Volume: model.VolumeID(a[1]), To: model.NodeID(a[2])}, a[3:])
		},
		// backup b1 db/main/0/data live
		"backup": func(w *world, a []string) string {
			return w.startTransfer(fsm.TransferStart{ID: model.TransferID(a[0]), Work: model.TransferBackup,
				Volume: model.VolumeID(a[1])}, a[2:])
		},
		// restore r1 b1 n2 volume=db/main/1/data attach
		"restore": func(w *world, a []string) string {
			return w.startTransfer(fsm.TransferStart{ID: model.TransferID(a[0]), Work: model.TransferRestore,
				Backup: model.BackupID(a[1]), To: model.NodeID(a[2])}, a[3:])
		},
		// attach a1 db/main/0/data@r1
		"attach": func(w *world, a []string) string {
			return w.startTransfer(fsm.TransferStart{ID: model.TransferID(a[0]), Work: model.TransferAttach,
				Volume: model.VolumeID(a[1])}, a[2:])
		},
		"give-up": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.TransferCancel{ID: model.TransferID(a[0])}))
		},
		"forget": func(w *world, a []string) string {
			c := &fsm.NodeForget{ID: model.NodeID(a[0])}
			for _, group := range a[1:] { // forget n1 lose=db/main
				c.LoseData = append(c.LoseData, model.GroupID(strings.TrimPrefix(group, "lose=")))
			}
			return w.must(w.apply("cli:ann", c))
		},
		// part t1 n2 copying 300 1000; part t1 n2 failed integrity_check_failed chunk 7 differs: an agent reports on its part
		// of a transfer
		"part": (*world).cmdPart,
	}
}

func (w *world) startTransfer(c fsm.TransferStart, args []string) string {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "keep":
			c.Options.Cooling = duration(value)
		case "live":
			c.Options.Live = true
		case "attach":
			c.Options.Attach = true
		case "volume":
			c.Volume = model.VolumeID(value)
		default:
			w.t.Fatalf("%s: no such option: %s", w.at, key)
		}
	}
	return w.must(w.apply("cli:ann", &c))
}

func (w *world) cmdPart(args []string) string {
	r := model.TransferReport{ID: model.TransferID(args[0]), State: model.TransferState(args[2])}
	switch {
	case r.State == model.SideFailed:
		r.Code, r.Message = model.Code(args[3]), strings.Join(args[4:], " ")
	case len(args) > 4:
		r.Bytes, r.Total = int64(number(args[3])), int64(number(args[4]))
	}
	return w.tell(model.NodeID(args[1]), r)
}

func (w *world) tell(node model.NodeID, r model.TransferReport) string {
	n, _ := w.state.Nodes.Get(node)
	return w.must(w.apply("agent:"+model.Actor(node),
		&fsm.NodeReport{ID: node, Epoch: n.Agent.Epoch, Transfers: []model.TransferReport{r}}))
}

// moveVolumes makes each reachable agent carry out and report one step of its part in every transfer. If nodes is not
// empty, only the agents of these nodes do so. The result is whether an agent reported anything.
func (w *world) moveVolumes(nodes []string) bool {
	changed := false
	can := func(id model.NodeID) bool {
		_, known := w.state.Nodes.Get(id)
		return known && w.reach(id) && (len(nodes) == 0 || slices.Contains(nodes, string(id)))
	}
	var all []*fsm.Transfer
	for _, t := range w.state.Transfers.All() {
		all = append(all, t)
	}
	for _, t := range all {
		node, state := t.To, model.TransferState("")
		switch {
		case t.Left.Drop:
			node, state = t.Left.Old, model.SideDropped
		case t.Phase == model.TransferCopying && can(t.From), t.Phase == model.TransferRunning &&
			t.Kind == model.TransferRestore:
			state = model.SideVerified
		case t.Phase == model.TransferRunning:
			node, state = t.From, model.SideVerified
		case t.Phase == model.TransferAttaching:
			state = model.SideAttached
		}
		if state != "" && can(node) && (t.Left.Drop || t.Worker().State != state) {
			w.tell(node, model.TransferReport{ID: t.ID, State: state, Bytes: 1 << 30, Total: 1 << 30, Sum: "5a"})
			changed = true
		}
	}
	return changed
}

// showVolumes returns the output of show volumes, show transfers or show backups. It returns false for any other word.
func (w *world) showVolumes(what string) (string, bool) {
	var out strings.Builder
	switch what {
	case "volumes":
		for id, v := range w.state.Volumes.All() {
			where := "on " + string(v.Home)
			if v.Home == "" {
				where = "lost"
			}
			for _, a := range v.Aside {
				where += ", left behind on " + string(a.Node)
			}
			fmt.Fprintln(&out, strings.TrimSuffix(fmt.Sprintf("%s %s in %s", id, where, v.Transfer), " in "))
		}
	case "transfers":
		for id, t := range w.state.Transfers.All() {
			fmt.Fprintf(&out, "%s %s %s from %q to %q", id, t.Kind, t.Phase, t.From, t.To)
			if t.Failure.Code != "" {
				fmt.Fprintf(&out, ": %s: %s", t.Failure.Code, w.words(t.Failure.Message))
			}
			if t.Left.Old != "" {
				fmt.Fprintf(&out, ", old copy on %s for %s", t.Left.Old, t.Left.Until.Sub(w.now))
			}
			if t.Left.Detached != "" {
				fmt.Fprintf(&out, ", copy on %s", t.Left.Detached)
			}
			out.WriteString("\n")
		}
	case "backups":
		for id, b := range w.state.Backups.All() {
			fmt.Fprintf(&out, "%s of %s/%d by %s, live %t\n", id, b.Group, b.Slot, b.Node, b.Live)
		}
	default:
		return "", false
	}
	return out.String(), true
}

// sayTransfer describes a step of a transfer.
func sayTransfer(c *fsm.TransferStep) string {
	switch {
	case c.Drop:
		return fmt.Sprintf("transfer %s: drop the old copy", c.ID)
	case c.Code != "":
		return fmt.Sprintf("transfer %s %s: %s: %s", c.ID, c.Phase, c.Code, c.Message)
	}
	return fmt.Sprintf("transfer %s %s", c.ID, c.Phase)
}
