package model

// LeaseBeats is how many heartbeats a node sends within the shortest lease of what it runs: a few may be lost.
const LeaseBeats = 6

// Bounds of a lease.
const (
	defaultLease = Minute
	minLease     = 10 * Second
	maxLease     = 24 * Hour
)

// ExclusiveSpec is the lease under which the instances of a group run. The lease holds while a majority of the servers
// answer the node's heartbeats; at its end the node kills the instance by itself. So another node may start the next
// one without a person's word.
type ExclusiveSpec struct {
	// default 1 min, at least 10 s; its length does not depend on offline_after
	Lease Duration `json:"lease,omitempty" cbor:"1,keyasint,omitempty"`
}

// Fenced reports whether instances run only while their node holds the group's lease. No role and no volume implies
// that.
func (g *GroupSpec) Fenced() bool { return g.Exclusive != nil }

// OneHolder reports whether a slot may never have two instances that are not confirmed stopped: they would share a
// volume or an identity.
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
