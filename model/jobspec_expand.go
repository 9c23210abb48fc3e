package model

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/internal/plant"
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
	defaultFactsInterval = 5 * Second
	defaultHookTimeout   = 30 * Second

	// defaultProof is the default min_healthy of a group with auto_revert and no check. A program without a check is ready
	// as soon as it has started. Without this time, a version whose program exits a second later would be accepted as
	// good. UpdateSpec.proof returns less for a short deadline.
	defaultProof = 5 * Second
)

// Expand returns j with all defaults and the preset of each group's role. Given values do not change. The result is
// what `job validate` prints and what servers store.
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
		case g.HasVolume(VolumeLocal):
			g.Role = RoleLocal
		case g.Replicated():
			g.Role = RoleReplicated
		}
	}
	if g.Container != nil {
		c := g.Container.expand()
		g.Container = &c
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
	if g.trustsStart() {
		g.Update.MinHealthy = g.Update.proof()
	}
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
	if g.RoleCheck != nil {
		c := g.RoleCheck.expand()
		g.RoleCheck = &c
	}
	g.Hooks = slices.Clone(g.Hooks)
	for i := range g.Hooks {
		orZero(&g.Hooks[i].Timeout, defaultHookTimeout)
		orZero(&g.Hooks[i].OnFailure, HookAbort)
	}
	if g.Fenced() {
		lease := *g.Exclusive
		orZero(&lease.Lease, defaultLease)
		g.Exclusive = &lease
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

func (c RoleCheckSpec) expand() RoleCheckSpec {
	orZero(&c.Interval, defaultFactsInterval)
	orZero(&c.Timeout, defaultCheckTimeout)
	if c.Port != "" {
		orZero(&c.Path, "/")
	}
	return c
}

// rolePreset has the values that a role gives a group.
type rolePreset struct {
	role           Role
	evict          Mode
	evictWhen      []string
	order          Order
	replace        Mode
	replaceWhen    []string
	identity, data string
	unreachable    Duration
	notReady       Duration
}

func rolePresets() []rolePreset {
	return []rolePreset{
		{RoleService, ModeAlways, nil, OrderSurge, ModeAlways, nil, "new", "empty", 0, 30 * Second},
		{RoleProbe, ModeAlways, nil, OrderStopFirst, ModeAlways, nil, "new", "empty", 5 * Second, 5 * Second},
		{RoleFront, ModeAlways, nil, OrderSurge, ModeAlways, nil, "new", "empty", 15 * Second, 15 * Second},
		{RoleWorker, ModeAlways, nil, OrderSurge, ModeAlways, nil, "new", "empty", Minute, Minute},
		{RoleShardedData, ModeWhen, []string{"self.drained", "!self.leads_shards"}, OrderSurge, ModeWhen,
			[]string{"led_shards.in_sync_followers"}, "new", "empty", 5 * Minute, 5 * Minute},
		{RoleQuorum, ModeWhen, []string{"!self.leader", "group.leader_responding", "group.followers_responding >= 1"},
			OrderStopFirst, ModeWhen, []string{"old.confirmed_stopped"}, "same", "empty", 5 * Minute, 5 * Minute},
		{RoleSingleton, ModeNever, nil, OrderStopFirst, ModeNever, nil, "new", "keep", Forever, Forever},
		{RoleLeaderFollower, ModeWhen, []string{"!self.leader"}, OrderSurge, ModeAlways, nil, "new",
			"empty", 5 * Minute, 5 * Minute},
		{RoleLocal, ModeNever, nil, OrderStopFirst, ModeNever, nil, "same", "keep", Forever, Forever},
		{RoleReplicated, ModeAlways, nil, OrderSurge, ModeAlways, nil, "new", "empty", Minute, 30 * Second},
		{RoleSystem, ModeLast, nil, OrderStopFirst, ModeRestart, nil, "new", "empty", Forever, Forever},
	}
}

func roleNames() string {
	var names []string
	for _, r := range rolePresets() {
		names = append(names, string(r.role))
	}
	return strings.Join(names, ", ")
}

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { return presetOf(r).role == r }

// presetOf returns the preset of a role, or the preset of service if the role is unknown.
func presetOf(role Role) rolePreset {
	rows := rolePresets()
	if i := slices.IndexFunc(rows, func(r rolePreset) bool { return r.role == role }); i >= 0 {
		return rows[i]
	}
	return rows[0]
}

// preset fills in the role's values where the job gives none. If the job gives gates without a mode, the mode is
// "when". The role's gates are added only if the mode is "when" and the job gives no gates.
func (g *GroupSpec) preset() {
	r := presetOf(g.Role)
	if g.Role == RoleQuorum && !g.Fenced() && plant.Is(plant.LeaseByRole) {
		g.Exclusive = &ExclusiveSpec{Lease: defaultLease}
	}
	gate(&g.Eviction.Mode, &g.Eviction.When, r.evict, r.evictWhen)
	gate(&g.Replacement.Mode, &g.Replacement.When, r.replace, r.replaceWhen)
	orZero(&g.Eviction.SurgeWait, WaitReady)
	orZero(&g.Replacement.Identity, r.identity)
	if g.HasVolume(VolumeLocal) && !refillsByRole(g.Role) {
		r.data = dataKeep // no other member would copy its data to an empty one
	}
	orZero(&g.Replacement.Data, r.data)
	if g.Toleration.Unreachable == nil {
		g.Toleration.Unreachable = &r.unreachable
	}
	if g.Toleration.NotReady == nil {
		g.Toleration.NotReady = &r.notReady
	}
	if g.OneHolder() { // two instances must not run at once (X8); checkOrder refuses an explicit surge
		r.order = OrderStopFirst
	}
	orZero(&g.Eviction.Order, r.order)
}

func gate(mode *Mode, when *[]string, preset Mode, gates []string) {
	if *mode == "" && len(*when) > 0 {
		*mode = ModeWhen
	}
	orZero(mode, preset)
	if *mode == ModeWhen && len(*when) == 0 {
		*when = gates
	}
}

// HasVolume reports whether the group has a volume of this kind.
func (g *GroupSpec) HasVolume(kind VolumeKind) bool {
	return slices.ContainsFunc(g.Volumes, func(v VolumeSpec) bool { return v.Kind == kind })
}

func orZero[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// proof returns the default min_healthy of a group with auto_revert and no check. It is at most half the deadline,
// because a longer time could leave no time for a rollout to succeed.
func (u UpdateSpec) proof() Duration {
	if u.Deadline > 0 {
		return min(defaultProof, u.Deadline/2)
	}
	return defaultProof
}
