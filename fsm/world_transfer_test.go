package fsm

import "github.com/outspan/outspan/model"

// transferStart draws the start of a transfer, mostly with an existing volume and backup.
func (w world) transferStart() Command {
	c := &TransferStart{
		ID: model.TransferID(w.fresh("t")), Work: pick(w, model.TransferMigrate, model.TransferMigrate, model.TransferBackup,
			model.TransferBackup, model.TransferRestore, model.TransferRestore, model.TransferAttach),
		Volume: key(w, w.s.Volumes), To: w.eligible(), Backup: key(w, w.s.Backups), Token: "k",
	}
	c.Options = TransferOptions{Live: w.bool(), Attach: w.bool(), Cooling: pick[model.Duration](w, 0, 1, model.Minute)}
	if c.Work == model.TransferRestore && !w.rarely(3) {
		c.Volume = ""
	}
	switch w.int(1, 20) {
	case 1:
		c.Work = "copy"
	case 2:
		c.ID = key(w, w.s.Transfers)
	case 3:
		c.Volume = pick[model.VolumeID](w, "a/b", "a/b/x/c", "web/a/-1/data", "web/a/0/data")
	}
	return c
}

// transferStep draws a step of a transfer, mostly one that the transfer's phase allows.
func (w world) transferStep() Command {
	id := key(w, w.s.Transfers)
	c := &TransferStep{ID: id, Phase: pick(w, model.TransferStopping, model.TransferCopying, model.TransferRunning,
		model.TransferAttaching, model.TransferStarting, model.TransferSucceeded, model.TransferFailed)}
	t, ok := w.s.Transfers.Get(id)
	for _, other := range w.s.Transfers.All() {
		if !other.Phase.Ended() && w.bool() {
			t, ok, c.ID = other, true, other.ID
			break
		}
	}
	if ok && !w.rarely(6) {
		var next []model.TransferPhase
		for _, e := range t.edges() {
			if e[0] == t.Phase {
				next = append(next, e[1])
			}
		}
		if len(next) > 0 {
			c.Phase = pick(w, next...)
		}
	}
	if c.Phase == model.TransferFailed && !w.rarely(4) {
		c.Code, c.Message = model.CodeStalled, "nothing has moved"
	}
	c.Drop = ok && t.Phase.Ended() && w.bool()
	return c
}

// transferReports draws the reports of a node's agent on transfers. Most are about transfers of the node. If the
// servers wait for a copy to be attached or removed, most say that this has happened. Otherwise the state is random.
func (w world) transferReports(node model.NodeID) []model.TransferReport {
	var reports []model.TransferReport
	for id, t := range w.s.Transfers.All() {
		if t.From != node && t.To != node && !w.rarely(8) {
			continue
		}
		r := model.TransferReport{ID: id,
			State: pick(w, model.SideServing, model.SideCopying, model.SideVerifying, model.SideVerified, model.SideVerified,
				model.SideAttached), Bytes: int64(w.int(0, 100)), Total: 100}
		switch {
		case t.Phase == model.TransferAttaching && !w.rarely(3):
			r.State = model.SideAttached
		case t.Left.Drop && !w.rarely(3):
			r.State = model.SideDropped
		case w.rarely(12):
			r.State, r.Code, r.Message = pick(w, model.SideFailed, "odd"), model.CodeIntegrity, "a chunk is damaged"
		}
		reports = append(reports, r)
	}
	return reports
}

// pushTransfer draws the next step of a transfer: a new phase, an agent's report, or a stop that the transfer waits
// for. Random commands alone would rarely bring a transfer to its end. If no transfer is in progress, pushTransfer
// mostly starts one, or returns nil if there is no volume.
func (w world) pushTransfer() Command {
	for _, t := range w.s.Transfers.All() {
		if t.Left.Drop && w.bool() {
			return w.says(t.Left.Old, model.TransferReport{ID: t.ID, State: model.SideDropped})
		}
		if !t.Phase.Ended() && !w.rarely(3) {
			return w.push(t)
		}
	}
	if w.s.Volumes.Len() == 0 {
		return nil
	}
	if w.s.Backups.Len() > 0 && w.rarely(6) {
		return &BackupForget{key(w, w.s.Backups)}
	}
	c := w.transferStart().(*TransferStart)
	for id, v := range w.s.Volumes.All() {
		switch {
		case v.Copy != "":
			c.Work, c.Volume = pick(w, model.TransferAttach, c.Work), id
		case c.Work != model.TransferRestore && w.bool():
			c.Volume = id
		}
	}
	if c.Work == model.TransferAttach && w.bool() {
		c.Found = []model.VolumeEpoch{{Name: "data", Epoch: uint64(w.int(0, 60))}}
	}
	return c
}

func (w world) says(node model.NodeID, r model.TransferReport) Command {
	n, ok := w.s.Nodes.Get(node)
	if !ok {
		return &NodeReport{ID: node}
	}
	return &NodeReport{ID: node, Epoch: n.Agent.Epoch, Full: n.Return.Recovering, Transfers: []model.TransferReport{r}}
}

func (w world) push(t *Transfer) Command {
	inst, busy := w.s.slotBusy(t.Group, t.Slot)
	switch {
	case busy && t.Phase == model.TransferStopping && inst.Desired == model.DesiredRunning:
		return &InstanceStop{ID: inst.ID, Cause: model.CauseUser, By: "alice", Bypass: true}
	case busy && t.Phase == model.TransferStopping:
		n, _ := w.s.Nodes.Get(inst.Node)
		return &NodeReport{ID: inst.Node, Epoch: n.Agent.Epoch,
			Instances: []model.InstanceStatus{
				{ID: inst.ID, Generation: inst.Status.Generation + 1, Observed: model.ObservedStopped}}}
	}
	next := model.TransferPhase("")
	for _, e := range t.edges() {
		if e[0] == t.Phase && (next == "" || (e[1] == model.TransferStopping) == t.Options.Attach) {
			next = e[1]
		}
	}
	if refusal := w.s.mayStep(t, next); refusal == nil || refusal.Code != model.CodeStale {
		return &TransferStep{ID: t.ID, Phase: next}
	}
	state := model.SideVerified
	if t.Phase == model.TransferAttaching {
		state = model.SideAttached
	}
	node := t.To
	if t.Kind == model.TransferBackup {
		node = t.From
	}
	return w.says(node, model.TransferReport{ID: t.ID, State: state, Bytes: 9, Total: 9, Sum: "5a"})
}
