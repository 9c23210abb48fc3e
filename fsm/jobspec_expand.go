package fsm

import (
	"bytes"
	"slices"
	"strings"
)

// Defaults of a group.
const (
	defaultMemory        = 64 << 20
	defaultCPU           = 100
	defaultGrace         = 10 * Second
	defaultDrainDelay    = Second
	defaultCheckInterval = 10 * Second
	defaultCheckTimeout  = 2 * Second
	defaultCheckGrace    = 10 * Second
)

// Expand fills in every default and the preset of each group's role; keys that were given win. What it returns is what `job validate` prints and what
// is stored.
func (j JobSpec) Expand() JobSpec {
	if j.Class == "" {
		j.Class = ClassProduction
	}
	j.Groups = slices.Clone(j.Groups)
	for i := range j.Groups {
		j.Groups[i] = j.Groups[i].expand()
	}
	return j
}

func (g GroupSpec) expand() GroupSpec {
	if g.Role == "" {
		g.Role = RoleService
		switch {
		case g.hasVolume(VolumeLocal):
			g.Role = RoleLocal
		case g.Replicated():
			g.Role = RoleReplicated
		}
	}
	orZero(&g.Resources.CPU, int64(defaultCPU))
	orZero(&g.Resources.MemoryBytes, int64(defaultMemory))
	orZero(&g.Stop.Signal, "SIGTERM")
	orZero(&g.Stop.Grace, defaultGrace)
	orZero(&g.Stop.DrainDelay, defaultDrainDelay)
	orZero(&g.Restart.Attempts, 3)
	orZero(&g.Restart.Interval, 10*Minute)
	orZero(&g.Restart.Delay, 5*Second)
	orZero(&g.Reschedule.Attempts, 3)
	orZero(&g.Reschedule.Interval, 10*Minute)
	orZero(&g.Update.Deadline, 10*Minute)
	if g.Update.MaxSurge == 0 && g.Update.MaxUnavailable == 0 {
		g.Update.MaxSurge = 1
	}
	g.Volumes = slices.Clone(g.Volumes)
	for i, v := range g.Volumes {
		if trimmed := strings.TrimRight(v.Path, "/"); trimmed != "" {
			g.Volumes[i].Path = trimmed // "/data/" is "/data"
		}
	}
	g.Checks = slices.Clone(g.Checks)
	for i := range g.Checks {
		g.Checks[i] = g.Checks[i].expand()
	}
	g.preset()
	orZero(&g.Update.Order, g.Eviction.Order)
	return g
}

func (c CheckSpec) expand() CheckSpec {
	orZero(&c.Interval, defaultCheckInterval)
	orZero(&c.Timeout, defaultCheckTimeout)
	orZero(&c.Grace, defaultCheckGrace)
	orZero(&c.Successes, 1)
	orZero(&c.Failures, 3)
	if c.Kind == CheckHTTP {
		orZero(&c.Path, "/")
	}
	return c
}

// preset fills in the role's row of the table in model section 4.
func (g *GroupSpec) preset() {
	type row struct {
		evict              Mode
		order              Order
		replace            Mode
		identity, data     string
		unreachable, unrdy Duration
	}
	var r row
	switch g.Role {
	case RoleLocal:
		r = row{ModeNever, OrderStopFirst, ModeNever, "same", "keep", Forever, Forever}
	case RoleReplicated:
		r = row{ModeAlways, OrderSurge, ModeAlways, "new", "empty", Minute, 30 * Second}
	case RoleSystem:
		r = row{ModeLast, OrderStopFirst, ModeRestart, "new", "empty", Forever, Forever}
	default:
		r = row{ModeAlways, OrderSurge, ModeAlways, "new", "empty", 0, 30 * Second}
	}
	orZero(&g.Eviction.Mode, r.evict)
	orZero(&g.Eviction.SurgeWait, WaitReady)
	orZero(&g.Replacement.Mode, r.replace)
	orZero(&g.Replacement.Identity, r.identity)
	orZero(&g.Replacement.Data, r.data)
	if g.Toleration.Unreachable == nil {
		g.Toleration.Unreachable = &r.unreachable
	}
	if g.Toleration.NotReady == nil {
		g.Toleration.NotReady = &r.unrdy
	}
	// A local volume alone needs no fencing: its data can't be elsewhere (model section 6).
	g.Exclusive = g.Exclusive || g.Replacement.Identity == "same" && !g.hasVolume(VolumeLocal)
	if g.singleHolder() { // the old one must be gone first (X8); who asks for surge is refused by checkRole
		r.order = OrderStopFirst
	}
	orZero(&g.Eviction.Order, r.order)
}

func (g *GroupSpec) hasVolume(kind VolumeKind) bool {
	return slices.ContainsFunc(g.Volumes, func(v VolumeSpec) bool { return v.Kind == kind })
}

func orZero[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// sameEncoding reports whether two rows would be stored as the same bytes: nil and empty are the same.
func sameEncoding(a, b any) bool {
	var left, right bytes.Buffer
	if wire.enc.MarshalToBuffer(a, &left) != nil || wire.enc.MarshalToBuffer(b, &right) != nil {
		return false
	}
	return bytes.Equal(left.Bytes(), right.Bytes())
}
