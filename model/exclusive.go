package model

// LeaseBeats is how many heartbeats a node sends within the shortest lease of its instances, so that a lease survives a
// few lost heartbeats.
const LeaseBeats = 6

// Default and bounds of a lease.
const (
	defaultLease = Minute
	minLease     = 10 * Second
	maxLease     = 24 * Hour
)

// ExclusiveSpec is the lease under which the instances of a group run. The lease is valid while a majority of the
// servers answers the node's heartbeats. When the lease expires, the instance is killed on its node. Another node may
// start the replacement after that, without an operator's confirmation.
type ExclusiveSpec struct {
	// default 1 min; must be 10 s to 24 h; independent of offline_after
	Lease Duration `json:"lease,omitempty" cbor:"1,keyasint,omitempty"`
}

// Fenced reports whether the group's instances run only while their node holds a lease. Only the exclusive block asks
// for a lease; no role or volume does.
func (g *GroupSpec) Fenced() bool { return g.Exclusive != nil }

// OneHolder reports whether an instance must be confirmed stopped before another one may run in its slot, because both
// would use the same local volume, lease or identity.
func (g *GroupSpec) OneHolder() bool {
	return g.HasVolume(VolumeLocal) || g.Fenced() || g.Replacement.Identity == "same"
}

func (g *GroupSpec) checkExclusive() *Error {
	if g.Fenced() && (g.Exclusive.Lease < minLease || g.Exclusive.Lease > maxLease) {
		return RefuseAt(KeyPath("exclusive", "lease"),
			"exclusive.lease is %s; it must be %s to %s", g.Exclusive.Lease, minLease, maxLease)
	}
	return nil
}
