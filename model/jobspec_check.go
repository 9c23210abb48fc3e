package model

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a job.
const (
	maxGroups = 64
	maxCount  = 100_000
	maxAmount = 1 << 50 // bytes, CPU shares or processes; small enough that sums can't overflow
)

// Check returns the first mistake in an expanded spec, or nil. It finds only mistakes that don't depend on the cluster.
// The error's Key is the place of the mistake. Code: invalid.
func (j *JobSpec) Check() *Error {
	if !ValidName(string(j.Name)) {
		return RefuseAt(KeyPath("name"), "job name %q: use 1 to 63 letters, digits, '-', '_' or '.'", j.Name)
	}
	if len(j.Groups) == 0 || len(j.Groups) > maxGroups {
		return Refuse(CodeInvalid, "job %s has %d groups; it needs 1 to %d", j.Name, len(j.Groups), maxGroups)
	}
	names, static, services, exposed := map[string]bool{}, map[int]string{}, map[string]bool{}, map[int]string{}
	for i := range j.Groups {
		g := &j.Groups[i]
		if names[g.Name] {
			return RefuseAt(KeyPath("group", g.Name), "job %s has two groups named %s", j.Name, g.Name)
		}
		names[g.Name] = true
		if refusal := g.check(); refusal != nil {
			return j.inGroup(g, refusal)
		}
		for _, p := range g.Ports {
			if other, taken := static[p.Static]; p.Static != 0 && taken {
				return RefuseAt(KeyPath("group", g.Name, "port", p.Name, "static"),
					"job %s: the static port %d is asked for by both %s and %s/%s",
					j.Name, p.Static, other, g.Name, p.Name)
			}
			static[p.Static] = g.Name + "/" + p.Name
		}
		for _, svc := range g.Services {
			if services[svc.Name] {
				return RefuseAt(KeyPath("group", g.Name, "service", svc.Name),
					"job %s publishes the service %s twice", j.Name, svc.Name)
			}
			if other, taken := exposed[svc.Expose]; svc.Expose != 0 && taken {
				return RefuseAt(KeyPath("group", g.Name, "service", svc.Name, "expose"),
					"job %s exposes port %d by both services %s and %s", j.Name, svc.Expose, other, svc.Name)
			}
			services[svc.Name], exposed[svc.Expose] = true, svc.Name
		}
	}
	for i := range j.Groups {
		for _, svc := range j.Groups[i].Services {
			if holder, taken := static[svc.Expose]; svc.Expose != 0 && taken {
				return RefuseAt(KeyPath("group", j.Groups[i].Name, "service", svc.Name, "expose"),
					"job %s: %s asks for the static port %d, which the service %s exposes: every agent listens on it",
					j.Name, holder, svc.Expose, svc.Name).
					WithHint("use a dynamic port for the instance, or expose the service on another one")
			}
		}
	}
	return nil
}

// inGroup adds the names of job and group to a mistake in the group.
func (j *JobSpec) inGroup(g *GroupSpec, refusal *Error) *Error {
	refusal.Message = fmt.Sprintf("job %s, group %s: %s", j.Name, g.Name, refusal.Message)
	refusal.Key = KeyPath("group", g.Name, refusal.Key)
	return refusal
}

func (g *GroupSpec) check() *Error {
	for _, test := range []func() *Error{g.checkBounds, g.checkBasics, g.checkProgram, g.checkResources, g.checkExclusive,
		g.checkRole, g.checkPorts, g.checkVolumes, g.checkChecks, g.checkTimes, g.checkBudget, g.checkPlacement} {
		if refusal := test(); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (g *GroupSpec) checkBasics() *Error {
	if !ValidName(g.Name) {
		return RefuseAt("", "group name %q: use 1 to 63 letters, digits, '-', '_' or '.'", g.Name)
	}
	return g.checkCount()
}

func (g *GroupSpec) checkRole() *Error {
	if !g.Role.Valid() {
		return RefuseAt(KeyPath("role"), "role %q is unknown", g.Role).WithHint("use one of: %s", roleNames())
	}
	if g.Role == RoleReplicated && !g.Replicated() {
		return RefuseAt(KeyPath("role"),
			"the role is replicated and no volume is").WithHint("give a volume kind = \"replicated\", or use another role")
	}
	e, r := g.Eviction, g.Replacement
	switch {
	case !slices.Contains([]Mode{ModeAlways, ModeWhen, ModeNever, ModeLast}, e.Mode):
		return RefuseAt(KeyPath("eviction", "mode"), "eviction.mode is %q; it must be always, when, last or never", e.Mode)
	case !slices.Contains([]Order{OrderSurge, OrderStopFirst}, e.Order):
		return RefuseAt(KeyPath("eviction", "order"), "eviction.order is %q; it must be surge or stop_first", e.Order)
	case !slices.Contains([]SurgeWait{WaitReady, WaitStarted}, e.SurgeWait):
		return RefuseAt(KeyPath("eviction", "surge_wait"),
			"eviction.surge_wait is %q; it must be ready or started", e.SurgeWait)
	case !slices.Contains([]Mode{ModeAlways, ModeWhen, ModeNever, ModeRestart}, r.Mode):
		return RefuseAt(KeyPath("replacement", "mode"),
			"replacement.mode is %q; it must be always, when, never or restart", r.Mode)
	case r.Identity != "new" && r.Identity != "same":
		return RefuseAt(KeyPath("replacement", "identity"),
			"replacement.identity is %q; it must be new or same", r.Identity)
	case r.Data != "empty" && r.Data != "keep":
		return RefuseAt(KeyPath("replacement", "data"), "replacement.data is %q; it must be empty or keep", r.Data)
	case !slices.Contains([]Order{OrderSurge, OrderStopFirst}, g.Update.Order):
		return RefuseAt(KeyPath("update", "order"),
			"update.order is %q; it must be surge or stop_first", g.Update.Order)
	}
	for _, refusal := range []*Error{g.checkGates("eviction", e.Mode, e.When, false),
		g.checkGates("replacement", r.Mode, r.When, true), g.checkFacts(), g.checkHooks()} {
		if refusal != nil {
			return refusal
		}
	}
	return g.checkOrder()
}

func (g *GroupSpec) checkFacts() *Error {
	c := g.RoleCheck
	if c == nil {
		return nil
	}
	hasPort := slices.ContainsFunc(g.Ports, func(p PortSpec) bool { return p.Name == c.Port })
	switch {
	case (len(c.Exec) > 0) == (c.Port != ""):
		return RefuseAt(KeyPath("role_check"), "role_check needs either exec or port")
	case c.Port != "" && !hasPort:
		return RefuseAt(KeyPath("role_check", "port"), "role_check: there is no port %q in the group", c.Port)
	case c.Port == "" && c.Path != "":
		return RefuseAt(KeyPath("role_check", "path"), "role_check: path goes with port, not with exec")
	case c.Port != "" && !strings.HasPrefix(c.Path, "/"):
		return RefuseAt(KeyPath("role_check", "path"), "role_check: path is %q; it must begin with /", c.Path)
	case c.Interval < 100*Millisecond || c.Interval > Hour || c.Timeout < 10*Millisecond || c.Timeout > Hour:
		return RefuseAt(KeyPath("role_check"), "role_check: interval must be 100ms to 1h, timeout 10ms to 1h")
	}
	return nil
}

func (g *GroupSpec) checkHooks() *Error {
	for i, h := range g.Hooks {
		switch {
		case h.Name != HookBeforeStop && h.Name != HookAfterStart:
			return RefuseAt(KeyPath("hook", string(h.Name)),
				"hook %q is unknown", h.Name).WithHint("the hooks are: %s, %s", HookBeforeStop, HookAfterStart)
		case slices.ContainsFunc(g.Hooks[:i], func(other HookSpec) bool { return other.Name == h.Name }):
			return RefuseAt(KeyPath("hook", string(h.Name)), "hook %q is given twice", h.Name)
		case len(h.Exec) == 0 || h.Exec[0] == "":
			return RefuseAt(KeyPath("hook", string(h.Name), "exec"), "hook %s has no exec", h.Name)
		case h.Timeout < 10*Millisecond || h.Timeout > 24*Hour:
			return RefuseAt(KeyPath("hook", string(h.Name), "timeout"),
				"hook %s: timeout must be 10ms to 24h", h.Name)
		case h.OnFailure != HookAbort && h.OnFailure != HookContinue:
			return RefuseAt(KeyPath("hook", string(h.Name), "on_failure"),
				"hook %s: on_failure is %q; it must be abort or continue", h.Name, h.OnFailure)
		}
	}
	return nil
}

// checkOrder refuses the order surge if a slot may have only one instance at a time, because the old instance must be
// gone before the new one starts (X8).
func (g *GroupSpec) checkOrder() *Error {
	if !g.OneHolder() {
		return nil
	}
	key := ""
	switch OrderSurge {
	case g.Eviction.Order:
		key = "eviction.order"
	case g.Update.Order:
		key = "update.order"
	default:
		return nil
	}
	why := "keeps the identity of a slot, which only one instance may bear"
	if g.Fenced() {
		why = "is exclusive: only one instance of a slot may run"
	}
	if g.HasVolume(VolumeLocal) {
		why = fmt.Sprintf("has the volume %q, which only one instance may use", g.Volumes[0].Name)
	}
	return RefuseAt(strings.ReplaceAll(key, ".", "/"),
		"%s is \"surge\", but the group %s at a time",
		key, why).WithHint("leave %s out, or set it to \"stop_first\"", key)
}

// checkTo refuses a port inside a container that is invalid, or that a program in the node's network can't have.
func (g *GroupSpec) checkTo(p PortSpec) *Error {
	switch {
	case p.To == 0:
		return nil
	case p.To < 0 || p.To > 65535:
		return RefuseAt(KeyPath("port", p.Name, "to"), "port %s: to is %d; it must be 1 to 65535", p.Name, p.To)
	case g.Container == nil:
		return RefuseAt(KeyPath("port", p.Name, "to"),
			"port %s: to is the port in a container, and the group has none", p.Name).
			WithHint("leave to out: the program listens on ${port.%s}", p.Name)
	case !g.Bridged():
		return RefuseAt(KeyPath("port", p.Name, "to"),
			"port %s: to needs a container with a network of its own, and this one uses the network of its node", p.Name).
			WithHint("write network = \"bridge\" in the block container, or leave to out: the program listens on ${port.%s}",
				p.Name)
	}
	return nil
}

func (g *GroupSpec) checkPorts() *Error {
	names := map[string]bool{}
	for _, p := range g.Ports {
		if !ValidName(p.Name) || names[p.Name] {
			return RefuseAt(KeyPath("port", p.Name), "port %q is given twice or has a bad name", p.Name)
		}
		if p.Static < 0 || p.Static > 65535 {
			return RefuseAt(KeyPath("port", p.Name, "static"),
				"port %s: static is %d; it must be 1 to 65535", p.Name, p.Static)
		}
		if defaultPort(p.Static) {
			return RefuseAt(KeyPath("port", p.Name, "static"),
				"port %s: static is %d, on which servers and agents listen", p.Name, p.Static).WithHint("choose another port")
		}
		if refusal := g.checkTo(p); refusal != nil {
			return refusal
		}
		names[p.Name] = true
	}
	for _, svc := range g.Services {
		switch {
		case !ValidName(svc.Name):
			return RefuseAt(KeyPath("service", svc.Name),
				"service name %q: use 1 to 63 letters, digits, '-', '_' or '.'", svc.Name)
		case !names[svc.Port]:
			return RefuseAt(KeyPath("service", svc.Name, "port"),
				"service %s: there is no port %q in the group", svc.Name, svc.Port)
		case svc.Expose < 0 || svc.Expose > 65535:
			return RefuseAt(KeyPath("service", svc.Name, "expose"),
				"service %s: expose is %d; it must be 1 to 65535", svc.Name, svc.Expose)
		case defaultPort(svc.Expose):
			return RefuseAt(KeyPath("service", svc.Name, "expose"),
				"service %s: expose is %d, on which servers and agents listen", svc.Name,
				svc.Expose).WithHint("choose another port")
		}
	}
	return nil
}

func (g *GroupSpec) checkVolumes() *Error {
	names := map[string]bool{}
	for i, v := range g.Volumes {
		switch {
		case v.Kind != VolumeLocal && v.Kind != VolumeReplicated:
			return RefuseAt(KeyPath("volume", v.Name, "kind"),
				"volume %s: kind is %q; it must be local or replicated", v.Name, v.Kind)
		case v.Kind != g.Volumes[0].Kind:
			return RefuseAt(KeyPath("volume", v.Name, "kind"),
				"volume %s is %s and volume %s is %s; a group has one kind of volumes",
				v.Name, v.Kind, g.Volumes[0].Name, g.Volumes[0].Kind)
		case v.Kind == VolumeReplicated && g.RoleCheck == nil:
			return RefuseAt(KeyPath("volume", v.Name, "kind"),
				"volume %s is replicated and the group has no role_check: nobody could tell which copies are in sync",
				v.Name).
				WithHint("add role_check { exec = [...] } that prints {\"in_sync\":true} once the member's copy is complete")
		case !ValidName(v.Name) || names[v.Name]:
			return RefuseAt(KeyPath("volume", v.Name), "volume %q is given twice or has a bad name", v.Name)
		case !volumePath(v.Path):
			return RefuseAt(KeyPath("volume", v.Name, "path"),
				"volume %s: path is %q; it must be absolute and clean, and not /, /proc, /sys or /dev",
				v.Name, v.Path)
		case g.Role == RoleSystem:
			return RefuseAt(KeyPath("volume", v.Name), "volume %s: a system group can't have volumes", v.Name)
		}
		for _, other := range g.Volumes[:i] {
			if within(v.Path, other.Path) || within(other.Path, v.Path) {
				return RefuseAt(KeyPath("volume", v.Name, "path"),
					"volume %s: path %s overlaps that of volume %s", v.Name, v.Path, other.Name)
			}
		}
		names[v.Name] = true
	}
	return nil
}

// volumePath reports whether a volume can be mounted at this path.
func volumePath(p string) bool {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p || p == "/" || strings.Contains(p, "\x00") {
		return false
	}
	return !within(p, "/proc") && !within(p, "/sys") && !within(p, "/dev")
}

// within reports whether p is dir or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func (g *GroupSpec) checkChecks() *Error {
	for _, c := range g.Checks {
		hasPort := slices.ContainsFunc(g.Ports, func(p PortSpec) bool { return p.Name == c.Port })
		switch {
		case !ValidName(c.Name):
			return RefuseAt(KeyPath("check", c.Name),
				"check name %q: use 1 to 63 letters, digits, '-', '_' or '.'", c.Name)
		case c.Kind != CheckHTTP && c.Kind != CheckTCP && c.Kind != CheckExec:
			return RefuseAt(KeyPath("check", c.Name, "type"),
				"check %s: type is %q; it must be http, tcp or exec", c.Name, c.Kind)
		case c.Kind != CheckExec && !hasPort:
			return RefuseAt(KeyPath("check", c.Name, "port"),
				"check %s: there is no port %q in the group", c.Name, c.Port)
		case c.Kind == CheckExec && len(c.Command) == 0:
			return RefuseAt(KeyPath("check", c.Name), "check %s has no exec", c.Name)
		case c.Kind == CheckHTTP && !strings.HasPrefix(c.Path, "/"):
			return RefuseAt(KeyPath("check", c.Name, "path"),
				"check %s: path is %q; it must begin with /", c.Name, c.Path)
		case c.Interval < 100*Millisecond || c.Timeout < 10*Millisecond || c.Grace < 0 || c.Successes < 1 || c.Failures < 1:
			return RefuseAt(KeyPath("check", c.Name),
				"check %s: interval must be at least 100ms, timeout 10ms, successes and failures 1", c.Name)
		case c.RestartAfter < 0 || c.RestartAfter == Forever:
			return RefuseAt(KeyPath("check", c.Name, "restart_after"),
				"check %s: restart_after is %s; leave it out for no restart", c.Name, c.RestartAfter)
		}
	}
	return nil
}

// MaxGrace is the longest time that a job may give an instance to stop after its signal.
const MaxGrace = 24 * Hour

func (g *GroupSpec) checkTimes() *Error {
	u := g.Update
	switch {
	case g.Stop.Grace < 0 || g.Stop.Grace > MaxGrace || g.Stop.DrainDelay < 0 || g.Stop.DrainDelay > Hour:
		return RefuseAt(KeyPath("stop"), "stop.grace must be 0s to 24h, drain_delay 0s to 1h")
	case !validSignal(g.Stop.Signal):
		return RefuseAt(KeyPath("stop", "signal"),
			"stop.signal %q is unknown", g.Stop.Signal).WithHint("use one of: %s", strings.Join(stopSignals(), ", "))
	case g.Peers != nil && g.Peers.Signal != "" && !slices.Contains(peerSignals(), g.Peers.Signal):
		return RefuseAt(KeyPath("peers", "signal"),
			"peers.signal %q can't be sent",
			g.Peers.Signal).WithHint("use one of: %s", strings.Join(peerSignals(), ", "))
	case g.Restart.Attempts < 0 || g.Restart.Interval < 0 || g.Restart.Delay < 0:
		return RefuseAt(KeyPath("restart"), "restart must not have negative values")
	case g.Reschedule.Attempts < 0 || g.Reschedule.Interval < 0:
		return RefuseAt(KeyPath("reschedule"), "reschedule must not have negative values")
	case u.MaxSurge < 0 || u.MaxUnavailable < 0 || u.Canary < 0 || u.MinHealthy < 0 || u.Deadline < 0:
		return RefuseAt(KeyPath("update"), "update must not have negative values")
	case u.MinHealthy > 0 && u.MinHealthy >= u.Deadline:
		return RefuseAt(KeyPath("update", "min_healthy"),
			"update.min_healthy (%s) must be less than update.deadline (%s): no rollout could succeed",
			u.MinHealthy, u.Deadline).
			WithHint("make min_healthy shorter or deadline longer")
	}
	return g.checkCanary()
}

func stopSignals() []string {
	return []string{"SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL"}
}

func peerSignals() []string { return []string{"SIGHUP", "SIGUSR1", "SIGUSR2"} }

func validSignal(name string) bool { return slices.Contains(stopSignals(), name) }

func (g *GroupSpec) checkBudget() *Error {
	for i, name := range g.Budgets {
		if !ValidName(string(name)) || slices.Contains(g.Budgets[:i], name) || i == maxShared {
			return RefuseAt(KeyPath("budget"),
				"budget %q is given twice, has a bad name, or is one of more than %d", name, maxShared)
		}
	}
	b := g.Budget
	if b == nil {
		return nil
	}
	if refusal := b.Check(); refusal != nil {
		return refusal.at("budget")
	}
	return g.checkAllows()
}

func (g *GroupSpec) checkPlacement() *Error {
	for i, c := range g.Constraints {
		if refusal := c.check("constraint"); refusal != nil {
			return refusal.at("constraint", strconv.Itoa(i))
		}
	}
	for i, a := range g.Affinities {
		if refusal := a.Constraint.check("affinity"); refusal != nil {
			return refusal.at("affinity", strconv.Itoa(i))
		}
		if a.Weight < -100 || a.Weight > 100 || a.Weight == 0 {
			return RefuseAt(KeyPath("affinity", strconv.Itoa(i), "weight"),
				"affinity to %s: weight is %d; it must be -100 to 100 and not 0", a.Attribute, a.Weight)
		}
	}
	for i, a := range g.Distinct {
		if !validAttribute(a) {
			return unknownAttribute(a).at("distinct", strconv.Itoa(i))
		}
	}
	for i, sp := range g.Spreads {
		if !validAttribute(sp.Attribute) {
			return unknownAttribute(sp.Attribute).at("spread", strconv.Itoa(i))
		}
	}
	return nil
}
