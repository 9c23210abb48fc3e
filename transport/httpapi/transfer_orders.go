package httpapi

import (
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// transferOrders returns what an agent must do now for the transfers that concern its node.
func (r *reading) transferOrders(node model.NodeID) []transport.TransferOrder {
	var orders []transport.TransferOrder
	for _, t := range r.Transfers.All() {
		for _, task := range r.transferTasks(t, node) {
			orders = append(orders, r.transferOrder(t, task))
		}
	}
	return orders
}

func (r *reading) transferTasks(t *fsm.Transfer, node model.NodeID) []transport.TransferTask {
	var tasks []transport.TransferTask
	if task := transferTask(t, node); task != "" {
		tasks = append(tasks, task)
	}
	switch {
	case t.Left.Detached == node:
		tasks = append(tasks, transport.TaskKeep)
	case t.Left.Old != node:
	case t.Left.Drop:
		tasks = append(tasks, transport.TaskDrop)
	case !r.isHome(t, node): // the data on the home node is in use, even if the slot left the node and returned
		tasks = append(tasks, transport.TaskRetire)
	}
	return tasks
}

func transferTask(t *fsm.Transfer, node model.NodeID) transport.TransferTask {
	source, target := t.From == node, t.To == node
	switch {
	case t.Kind == model.TransferMigrate && (t.Phase == model.TransferCopying || t.Phase == model.TransferVerifying):
		if source {
			return transport.TaskServe
		}
		if target {
			return transport.TaskFetch
		}
	case t.Kind == model.TransferBackup && t.Phase == model.TransferRunning && source:
		return transport.TaskBackup
	case t.Kind == model.TransferRestore && t.Phase == model.TransferRunning && target:
		return transport.TaskRestore
	case t.Kind == model.TransferRestore && t.Phase == model.TransferStopping && target:
		return transport.TaskKeep
	case t.Kind == model.TransferAttach && t.Phase == model.TransferRunning && target:
		return transport.TaskFind
	case t.Phase == model.TransferAttaching && target:
		return transport.TaskAttach
	}
	return ""
}

func (r *reading) isHome(t *fsm.Transfer, node model.NodeID) bool {
	for _, id := range t.Volumes() {
		if v, ok := r.Volumes.Get(id); ok && v.Home == node {
			return true
		}
	}
	return false
}

func (r *reading) transferOrder(t *fsm.Transfer, task transport.TransferTask) transport.TransferOrder {
	o := transport.TransferOrder{
		ID: t.ID, Task: task, Group: t.Group, Slot: t.Slot, Names: t.Names, Backup: t.Backup, Staged: t.Options.Copy,
		Live: t.Options.Live, Wall: t.Marks.Wall,
	}
	switch task {
	case transport.TaskServe:
		o.Token, o.Epochs = t.Token, r.epochs(t)
	case transport.TaskBackup:
		o.Epochs = r.epochs(t)
	case transport.TaskAttach:
		o.Epoch, o.Epochs = slices.Max(r.epochs(t)), t.Found
		if made, ok := r.Transfers.Get(t.Options.Copy); ok {
			o.Epochs = made.Epochs
		}
	case transport.TaskFind:
		o.Epochs = t.Found
	case transport.TaskRetire, transport.TaskDrop:
		o.Epochs = t.Epochs
	case transport.TaskFetch:
		o.Token = t.Token
		o.User, o.Container = r.programOf(t.Group)
		if n, ok := r.Nodes.Get(t.From); ok {
			o.Peer, o.PeerName = n.Agent.APIAddress, n.Name
		}
	case transport.TaskRestore:
		if b, ok := r.Backups.Get(t.Backup); ok {
			o.Sum = b.Sum
		}
		o.User, o.Container = r.programOf(t.Group)
	}
	return o
}

// programOf returns the user that runs a group's programs, or "" if the job file names no user, and whether they are
// containers. The user of a container is one of its image, so it is not returned.
func (r *reading) programOf(group model.GroupID) (user string, container bool) {
	spec, ok := r.Policy(group)
	if !ok {
		return "", false
	}
	return spec.Exec.User, spec.Container != nil
}

// epochs returns the epochs of the data in a transfer's volumes, in the order of t.Names. The epoch of a volume that
// does not exist is 0.
func (r *reading) epochs(t *fsm.Transfer) []uint64 {
	epochs := make([]uint64, len(t.Names))
	for i, id := range t.Volumes() {
		if v, ok := r.Volumes.Get(id); ok {
			epochs[i] = v.Made
		}
	}
	return epochs
}
