package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

func (c *checker) detached(id model.VolumeID, v *Volume) {
	t, ok := c.s.Transfers.Get(v.Copy)
	c.want(ok && t.Kind == model.TransferRestore && t.Left.Detached == v.Home && t.DetachedID(v.Name) == id && v.ID == id,
		"volume %s is a copy that no transfer left on node %s", id, v.Home)
	c.want(v.Transfer == "", "volume %s is not in use and in transfer %s", id, v.Transfer)
	c.want(c.s.Nodes.Has(v.Home), "volume %s: its home %s does not exist", id, v.Home)
}

// transfers checks that a transfer and its volumes name each other. The home of a volume that is migrated or backed up
// must be the node From, or the node To if Phase.Attached is true. All local volumes of a slot must have the same home.
// No instance may use a volume while the volume is copied.
func (c *checker) transfers() {
	busy := map[model.VolumeID]model.TransferID{}
	for id, t := range c.s.Transfers.All() {
		if c.want(t.ID == id && len(t.Names) > 0, "transfer %s: its row says %s with %d volumes", id, t.ID,
			len(t.Names)); len(t.Names) == 0 {
			continue
		}
		c.want(t.Phase.Ended() == (t.Marks.EndedIndex != 0), "transfer %s is %s and ended at index %d",
			id, t.Phase, t.Marks.EndedIndex)
		c.want(t.Phase != model.TransferFailed || t.Failure.Code != "", "transfer %s failed without a code", id)
		c.want(t.Left.Old != "" || !t.Left.Drop, "transfer %s has no old copy and one to remove", id)
		c.want(t.Left.Old == "" || c.s.Nodes.Has(t.Left.Old), "transfer %s: the node %s of its old copy does not exist",
			id, t.Left.Old)
		if !t.Phase.Ended() {
			c.runningTransfer(t, busy)
		}
	}
	for id, v := range c.s.Volumes.All() {
		c.want(v.Transfer == busy[id], "volume %s is in transfer %q, its row says %q", id, busy[id], v.Transfer)
		if v.Copy == "" && v.Kind == model.VolumeLocal {
			for _, other := range c.s.slotVolumes(v.Group, v.Slot) {
				c.want(other.Home == v.Home || other.Home == "" || v.Home == "",
					"the volumes %s and %s of one slot are on %s and %s", id, other.ID, v.Home, other.Home)
			}
		}
	}
}

func (c *checker) runningTransfer(t *Transfer, busy map[model.VolumeID]model.TransferID) {
	c.want(slices.ContainsFunc(t.edges(), func(e [2]model.TransferPhase) bool {
		return e[0] == t.Phase
	}), "transfer %s of kind %s is %s", t.ID, t.Kind, t.Phase)
	c.want(t.Left == TransferLeft{} || t.Phase.Attached(), "transfer %s is %s and left %+v", t.ID, t.Phase, t.Left)
	if t.Kind == model.TransferRestore && !t.Options.Attach {
		return
	}
	for _, id := range t.Volumes() {
		v, ok := c.s.Volumes.Get(id)
		c.want(ok || !t.Phase.Attached() && t.Kind != model.TransferMigrate && t.Kind != model.TransferBackup,
			"transfer %s is %s and its volume %s does not exist", t.ID, t.Phase, id)
		if !ok {
			continue
		}
		c.want(busy[id] == "", "volume %s is in the transfers %s and %s", id, busy[id], t.ID)
		busy[id] = t.ID
		home := t.From
		if t.Phase.Attached() {
			home = t.To
		}
		c.want(v.Home == home || t.Kind == model.TransferRestore || t.Kind == model.TransferAttach,
			"transfer %s is %s and volume %s is on %s, not %s", t.ID, t.Phase, id, v.Home, home)
	}
	if !t.Holds() || t.Phase == model.TransferStopping {
		return
	}
	for inst := range c.s.InstancesInSlot(t.Group, t.Slot) { // instances of versions without volumes may run
		c.holds(S2, !inst.holdsClaims() || !inst.Links.HasVolumes, "transfer %s is %s and instance %s may use its volumes",
			t.ID, t.Phase, inst.ID)
	}
}
