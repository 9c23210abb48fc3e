package fsm

// transferStart draws work on volumes: half of it on what is there.
func (w world) transferStart() Command {
	c := &TransferStart{
		ID: TransferID(w.fresh("t")), Work: pick(w, TransferMigrate, TransferMigrate, TransferBackup, TransferBackup, TransferRestore, TransferRestore, TransferAttach),
		Volume: key(w, w.s.Volumes), To: w.eligible(), Backup: key(w, w.s.Backups), Token: "k",
	}
	c.Options = TransferOptions{Live: w.bool(), Attach: w.bool(), Cooling: pick[Duration](w, 0, 1, Minute)}
	if c.Work == TransferRestore && !w.rarely(3) {
		c.Volume = ""
	}
	switch w.int(1, 20) {
	case 1:
		c.Work = "copy"
	case 2:
		c.ID = key(w, w.s.Transfers)
	case 3:
		c.Volume = pick[VolumeID](w, "a/b", "a/b/x/c", "web/a/-1/data", "web/a/0/data")
	}
	return c
}

// transferStep draws a move of a transfer: most are the next one.
func (w world) transferStep() Command {
	id := key(w, w.s.Transfers)
	c := &TransferStep{ID: id, Phase: pick(w, TransferStopping, TransferCopying, TransferRunning, TransferAttaching, TransferStarting, TransferSucceeded, TransferFailed)}
	t, ok := w.s.Transfers.Get(id)
	for _, other := range w.s.Transfers.All() {
		if !other.Phase.Ended() && w.bool() {
			t, ok, c.ID = other, true, other.ID
			break
		}
	}
	if ok && !w.rarely(6) {
		var next []TransferPhase
		for _, e := range transferEdges(t.Kind) {
			if e[0] == t.Phase {
				next = append(next, e[1])
			}
		}
		if len(next) > 0 {
			c.Phase = pick(w, next...)
		}
	}
	if c.Phase == TransferFailed && !w.rarely(4) {
		c.Code, c.Message = CodeStalled, "nothing has moved"
	}
	c.Drop = ok && t.Phase.Ended() && w.bool()
	return c
}

// transferReports draws what the agent of a node says of its transfers: mostly what the servers wait for.
func (w world) transferReports(node NodeID) []TransferReport {
	var reports []TransferReport
	for id, t := range w.s.Transfers.All() {
		if t.From != node && t.To != node && !w.rarely(8) {
			continue
		}
		r := TransferReport{ID: id, State: pick(w, SideServing, SideCopying, SideVerifying, SideVerified, SideVerified, SideAttached), Bytes: int64(w.int(0, 100)), Total: 100}
		switch {
		case t.Phase == TransferAttaching && !w.rarely(3):
			r.State = SideAttached
		case t.Left.Drop && !w.rarely(3):
			r.State = SideDropped
		case w.rarely(12):
			r.State, r.Code, r.Message = pick(w, SideFailed, "odd"), CodeIntegrity, "a chunk is damaged"
		}
		reports = append(reports, r)
	}
	return reports
}
