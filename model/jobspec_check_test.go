package model

import (
	"fmt"
	"strings"
	"testing"
)

// soundGroup returns a valid group that sets most fields of a spec.
func soundGroup() GroupSpec {
	return GroupSpec{
		Name: "g", Count: 2, Exec: ExecSpec{Command: "/bin/x"}, Resources: Resources{MemoryBytes: minMemory},
		Env: map[string]string{"A": "b"}, Ports: []PortSpec{{Name: "http"}, {Name: "admin", Static: 9000}},
		Services: []ServiceSpec{{Name: "s", Port: "http", Expose: 80}},
		Checks: []CheckSpec{
			{Name: "c", Kind: CheckHTTP, Port: "http", Path: "/ok"}, {Name: "d", Kind: CheckExec, Command: []string{"/bin/c"}},
		},
		Hooks:       []HookSpec{{Name: HookBeforeStop, Exec: []string{"/bin/h"}}},
		RoleCheck:   &RoleCheckSpec{Exec: []string{"/bin/r"}},
		Constraints: []Constraint{{Attribute: "node.name", Operator: "=", Value: "n1"}},
		Affinities: []Affinity{
			{Constraint: Constraint{Attribute: "node.label.rack", Operator: "=", Value: "a"}, Weight: 50},
		},
		Budgets: []BudgetName{"b1"},
	}
}

// TestSpecIsRefused: each value outside its bounds is refused, and values just within them are not.
func TestSpecIsRefused(t *testing.T) {
	hour := Hour
	volume := func(kind VolumeKind, name, path string) VolumeSpec {
		return VolumeSpec{Name: name, Kind: kind, Path: path}
	}
	tests := []struct {
		name   string
		change func(g *GroupSpec)
		says   string // part of the refusal; "" means that the spec is accepted
	}{
		{"as it is", func(*GroupSpec) {}, ""},
		{"bad name", func(g *GroupSpec) { g.Name = "a/b" }, "group name"},
		{"count below", func(g *GroupSpec) { g.Count = -1 }, "count is -1"},
		{"count of none", func(g *GroupSpec) { g.Count = 0 }, ""},
		{"largest count", func(g *GroupSpec) { g.Count = maxCount }, ""},
		{"count above", func(g *GroupSpec) { g.Count = maxCount + 1 }, "count is 100001"},
		{"command below its directory", func(g *GroupSpec) { g.Exec.Command = "bin/web" }, "is no absolute path"},
		{"command here", func(g *GroupSpec) { g.Exec.Command = "./web" }, "is no absolute path"},
		{"command of PATH", func(g *GroupSpec) { g.Exec.Command = "sleep" }, ""},
		{"command of a label", func(g *GroupSpec) { g.Exec.Command = "${node.label.dir}/web" }, ""},
		{"env of the agent", func(g *GroupSpec) { g.Env = map[string]string{"OUTSPAN_SLOT": "1"} }, "OUTSPAN_SLOT"},
		{"env nearly of the agent", func(g *GroupSpec) { g.Env = map[string]string{"OUTSPANNER": "1"} }, ""},
		{"no command", func(g *GroupSpec) { g.Exec.Command = "" }, "no command"},
		{"little memory", func(g *GroupSpec) { g.Resources.MemoryBytes = minMemory - 1 }, "at least 1 MiB"},
		{"much memory", func(g *GroupSpec) { g.Resources.MemoryBytes = maxAmount + 1 }, "no machine has"},
		{"most memory", func(g *GroupSpec) { g.Resources.MemoryBytes = maxAmount }, ""},
		{"CPU below", func(g *GroupSpec) { g.Resources.CPU = -1 }, "must not be negative"},
		{"CPU above", func(g *GroupSpec) { g.Resources.CPU = maxAmount + 1 }, "no machine has"},
		{"most CPU", func(g *GroupSpec) { g.Resources.CPU = maxAmount }, ""},
		{"pids below", func(g *GroupSpec) { g.Resources.Pids = -1 }, "must not be negative"},
		{"pids above", func(g *GroupSpec) { g.Resources.Pids = maxAmount + 1 }, "no machine has"},
		{"most pids", func(g *GroupSpec) { g.Resources.Pids = maxAmount }, ""},
		{"disk below", func(g *GroupSpec) {
			g.Resources.DiskBytes = -1
		}, "resources.disk is -1 bytes; it must be at least 1 MiB"},
		{"little disk", func(g *GroupSpec) { g.Resources.DiskBytes = minDisk - 1 }, "at least 1 MiB"},
		{"least disk", func(g *GroupSpec) { g.Resources.DiskBytes = minDisk }, ""},
		{"disk above", func(g *GroupSpec) { g.Resources.DiskBytes = maxAmount + 1 }, "no machine has so many"},
		{"most disk", func(g *GroupSpec) { g.Resources.DiskBytes = maxAmount }, ""},
		{"env without name", func(g *GroupSpec) { g.Env = map[string]string{"": "x"} }, "env"},
		{"env with =", func(g *GroupSpec) { g.Env = map[string]string{"A=": "x"} }, "env"},
		{"env with zero byte", func(g *GroupSpec) { g.Env = map[string]string{"A": "\x00"} }, "env"},

		{"unknown role", func(g *GroupSpec) { g.Role = "boss" }, "role \"boss\" is unknown"},
		{"replicated without volume", func(g *GroupSpec) { g.Role = RoleReplicated }, "no volume is"},
		{"eviction mode", func(g *GroupSpec) { g.Eviction.Mode = "x" }, "eviction.mode"},
		{"eviction order", func(g *GroupSpec) { g.Eviction.Order = "x" }, "eviction.order"},
		{"surge wait", func(g *GroupSpec) { g.Eviction.SurgeWait = "x" }, "eviction.surge_wait"},
		{"replacement mode", func(g *GroupSpec) { g.Replacement.Mode = "x" }, "replacement.mode"},
		{"identity", func(g *GroupSpec) { g.Replacement.Identity = "x" }, "replacement.identity"},
		{"data", func(g *GroupSpec) { g.Replacement.Data = "x" }, "replacement.data"},
		{"update order", func(g *GroupSpec) { g.Update.Order = "x" }, "update.order"},
		{"eviction without gates", func(g *GroupSpec) { g.Eviction.Mode = ModeWhen }, "there are no gates"},
		{"gates of no use", func(g *GroupSpec) {
			g.Eviction.Mode, g.Eviction.When = ModeAlways, []string{"!self.leader"}
		}, "has gates and the mode is"},
		{"gates of the old one", func(g *GroupSpec) {
			g.Eviction.Mode, g.Eviction.When = ModeWhen, []string{"old.confirmed_stopped"}
		}, "belongs in replac"},

		{"role check with both", func(g *GroupSpec) { g.RoleCheck.Port = "http" }, "either exec or port"},
		{"role check with neither", func(g *GroupSpec) { g.RoleCheck.Exec = nil }, "either exec or port"},
		{"role check of a port", func(g *GroupSpec) { g.RoleCheck = &RoleCheckSpec{Port: "http", Path: "/role"} }, ""},
		{"role check of no port", func(g *GroupSpec) { g.RoleCheck = &RoleCheckSpec{Port: "x", Path: "/"} }, "no port \"x\""},
		{"role check exec and path", func(g *GroupSpec) { g.RoleCheck.Path = "/x" }, "path goes with port"},
		{"role check path", func(g *GroupSpec) { g.RoleCheck = &RoleCheckSpec{Port: "http", Path: "x"} }, "must begin"},
		{"role check often", func(g *GroupSpec) { g.RoleCheck.Interval = 100*Millisecond - 1 }, "interval must be"},
		{"role check at most often", func(g *GroupSpec) { g.RoleCheck.Interval = 100 * Millisecond }, ""},
		{"role check seldom", func(g *GroupSpec) { g.RoleCheck.Interval = Hour + 1 }, "interval must be"},
		{"role check most seldom", func(g *GroupSpec) { g.RoleCheck.Interval = Hour }, ""},
		{"role check brief", func(g *GroupSpec) { g.RoleCheck.Timeout = 10*Millisecond - 1 }, "interval must be"},
		{"role check briefest", func(g *GroupSpec) { g.RoleCheck.Timeout = 10 * Millisecond }, ""},
		{"role check long", func(g *GroupSpec) { g.RoleCheck.Timeout = Hour + 1 }, "interval must be"},
		{"role check longest", func(g *GroupSpec) { g.RoleCheck.Timeout = Hour }, ""},

		{"unknown hook", func(g *GroupSpec) { g.Hooks[0].Name = "x" }, "hook \"x\" is unknown"},
		{"hook after start", func(g *GroupSpec) { g.Hooks[0].Name = HookAfterStart }, ""},
		{"hook twice", func(g *GroupSpec) { g.Hooks = append(g.Hooks, g.Hooks[0]) }, "given twice"},
		{"hook without exec", func(g *GroupSpec) { g.Hooks[0].Exec = nil }, "has no exec"},
		{"hook of nothing", func(g *GroupSpec) { g.Hooks[0].Exec = []string{""} }, "has no exec"},
		{"hook brief", func(g *GroupSpec) { g.Hooks[0].Timeout = 10*Millisecond - 1 }, "10ms to 24h"},
		{"hook briefest", func(g *GroupSpec) { g.Hooks[0].Timeout = 10 * Millisecond }, ""},
		{"hook longest", func(g *GroupSpec) { g.Hooks[0].Timeout = 24 * Hour }, ""},
		{"hook long", func(g *GroupSpec) { g.Hooks[0].Timeout = 24*Hour + 1 }, "10ms to 24h"},
		{"hook failure", func(g *GroupSpec) { g.Hooks[0].OnFailure = "x" }, "on_failure"},
		{"hook goes on", func(g *GroupSpec) { g.Hooks[0].OnFailure = HookContinue }, ""},

		{"port name", func(g *GroupSpec) { g.Ports[1].Name = "a b" }, "port \"a b\""},
		{"port twice", func(g *GroupSpec) { g.Ports[1].Name = "http" }, "port \"http\" is given twice"},
		{"port below", func(g *GroupSpec) { g.Ports[1].Static = -1 }, "static is -1"},
		{"port above", func(g *GroupSpec) { g.Ports[1].Static = 65536 }, "static is 65536"},
		{"highest port", func(g *GroupSpec) { g.Ports[1].Static = 65535 }, ""},
		{"service name", func(g *GroupSpec) { g.Services[0].Name = "a b" }, "service name"},
		{"service of no port", func(g *GroupSpec) { g.Services[0].Port = "x" }, "no port \"x\""},
		{"expose below", func(g *GroupSpec) { g.Services[0].Expose = -1 }, "expose is -1"},
		{"expose above", func(g *GroupSpec) { g.Services[0].Expose = 65536 }, "expose is 65536"},
		{"expose highest", func(g *GroupSpec) { g.Services[0].Expose = 65535 }, ""},
		{"not exposed", func(g *GroupSpec) { g.Services[0].Expose = 0 }, ""},

		{"volume kind", func(g *GroupSpec) { g.Volumes = []VolumeSpec{volume("x", "data", "/d")} }, "kind is \"x\""},
		{"two kinds", func(g *GroupSpec) {
			g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/a"), volume(VolumeReplicated, "b", "/b")}
		}, "one kind of volumes"},
		{"copies nobody tells of", func(g *GroupSpec) {
			g.RoleCheck, g.Volumes = nil, []VolumeSpec{volume(VolumeReplicated, "a", "/a")}
		}, "no role_check"},
		{"volume twice", func(g *GroupSpec) {
			g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/a"), volume(VolumeLocal, "a", "/b")}
		}, "volume \"a\" is given twice"},
		{"volume name", func(g *GroupSpec) { g.Volumes = []VolumeSpec{volume(VolumeLocal, "a b", "/a")} }, "bad name"},
		{"two volumes", func(g *GroupSpec) {
			g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/data"), volume(VolumeLocal, "b", "/data2")}
		}, ""},
		{"volume below another", func(g *GroupSpec) {
			g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/d"), volume(VolumeLocal, "b", "/d/e")}
		}, "overlaps"},
		{"volume above another", func(g *GroupSpec) {
			g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/d/e"), volume(VolumeLocal, "b", "/d")}
		}, "overlaps"},
		{"volume of a system group", func(g *GroupSpec) {
			g.Role, g.Volumes = RoleSystem, []VolumeSpec{volume(VolumeLocal, "a", "/a")}
		}, "a system group can't"},
		{"volume path", func(g *GroupSpec) { g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "a")} }, "absolute and clean"},
		{"unclean", func(g *GroupSpec) { g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/a/../b")} }, "absolute"},
		{"volume over the root", func(g *GroupSpec) { g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/")} }, "absolute"},
		{"zero byte", func(g *GroupSpec) { g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/a\x00")} }, "absolute"},
		{"volume in proc", func(g *GroupSpec) { g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/proc/1")} }, "absolute"},
		{"volume over sys", func(g *GroupSpec) { g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/sys")} }, "absolute"},
		{"volume in dev", func(g *GroupSpec) { g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/dev/sda")} }, "absolute"},
		{"volume beside dev", func(g *GroupSpec) { g.Volumes = []VolumeSpec{volume(VolumeLocal, "a", "/device")} }, ""},

		{"check name", func(g *GroupSpec) { g.Checks[0].Name = "a b" }, "check name"},
		{"check kind", func(g *GroupSpec) { g.Checks[0].Kind = "x" }, "type is \"x\""},
		{"check of no port", func(g *GroupSpec) { g.Checks[0].Port = "x" }, "no port \"x\""},
		{"TCP check of a port", func(g *GroupSpec) { g.Checks[0].Kind, g.Checks[0].Path = CheckTCP, "" }, ""},
		{"check without exec", func(g *GroupSpec) { g.Checks[1].Command = nil }, "has no exec"},
		{"check path", func(g *GroupSpec) { g.Checks[0].Path = "ok" }, "must begin with /"},
		{"check often", func(g *GroupSpec) { g.Checks[0].Interval = 100*Millisecond - 1 }, "interval must be"},
		{"check at most often", func(g *GroupSpec) { g.Checks[0].Interval = 100 * Millisecond }, ""},
		{"check brief", func(g *GroupSpec) { g.Checks[0].Timeout = 10*Millisecond - 1 }, "interval must be"},
		{"check briefest", func(g *GroupSpec) { g.Checks[0].Timeout = 10 * Millisecond }, ""},
		{"check grace", func(g *GroupSpec) { g.Checks[0].Grace = -1 }, "interval must be"},
		{"check successes", func(g *GroupSpec) { g.Checks[0].Successes = -1 }, "interval must be"},
		{"check failures", func(g *GroupSpec) { g.Checks[0].Failures = -1 }, "interval must be"},
		{"check restarts before", func(g *GroupSpec) { g.Checks[0].RestartAfter = -1 }, "restart_after"},
		{"check restarts never", func(g *GroupSpec) { g.Checks[0].RestartAfter = Forever }, "restart_after"},

		{"grace below", func(g *GroupSpec) { g.Stop.Grace = -1 }, "stop.grace"},
		{"longest grace", func(g *GroupSpec) { g.Stop.Grace = 24 * Hour }, ""},
		{"grace above", func(g *GroupSpec) { g.Stop.Grace = 24*Hour + 1 }, "stop.grace"},
		{"delay below", func(g *GroupSpec) { g.Stop.DrainDelay = -1 }, "stop.grace"},
		{"longest delay", func(g *GroupSpec) { g.Stop.DrainDelay = Hour }, ""},
		{"delay above", func(g *GroupSpec) { g.Stop.DrainDelay = Hour + 1 }, "stop.grace"},
		{"stop signal", func(g *GroupSpec) { g.Stop.Signal = "SIGFOO" }, "stop.signal"},
		{"stop by kill", func(g *GroupSpec) { g.Stop.Signal = "SIGKILL" }, ""},
		{"peers signal", func(g *GroupSpec) { g.Peers = &PeersSpec{Signal: "SIGKILL"} }, "peers.signal"},
		{"peers without signal", func(g *GroupSpec) { g.Peers = &PeersSpec{} }, ""},
		{"peers by hangup", func(g *GroupSpec) { g.Peers = &PeersSpec{Signal: "SIGHUP"} }, ""},
		{"restart attempts", func(g *GroupSpec) { g.Restart.Attempts = -1 }, "restart must not"},
		{"restart interval", func(g *GroupSpec) { g.Restart.Interval = -1 }, "restart must not"},
		{"restart delay", func(g *GroupSpec) { g.Restart.Delay = -1 }, "restart must not"},
		{"reschedule attempts", func(g *GroupSpec) { g.Reschedule.Attempts = -1 }, "reschedule must not"},
		{"reschedule interval", func(g *GroupSpec) { g.Reschedule.Interval = -1 }, "reschedule must not"},
		{"surge below", func(g *GroupSpec) { g.Update.MaxSurge = -1 }, "update must not"},
		{"unavailable below", func(g *GroupSpec) { g.Update.MaxUnavailable = -1 }, "update must not"},
		{"canary below", func(g *GroupSpec) { g.Update.Canary = -1 }, "update must not"},
		{"min_healthy below", func(g *GroupSpec) { g.Update.MinHealthy = -1 }, "update must not"},
		{"min_healthy as long as the deadline", func(g *GroupSpec) {
			g.Update.MinHealthy, g.Update.Deadline = 5000, 5000
		}, "update.min_healthy (5s) must be less than update.deadline (5s)"},
		{"min_healthy below the deadline", func(g *GroupSpec) { g.Update.MinHealthy, g.Update.Deadline = 4999, 5000 }, ""},
		{"update deadline", func(g *GroupSpec) { g.Update.Deadline = -1 }, "update must not"},
		{"all are canaries", func(g *GroupSpec) { g.Update.Canary = 2 }, ""},
		{"too many canaries", func(g *GroupSpec) { g.Update.Canary = 3 }, "more than the count of 2"},

		{"budget name", func(g *GroupSpec) { g.Budgets[0] = "a b" }, "budget \"a b\""},
		{"budget twice", func(g *GroupSpec) { g.Budgets = []BudgetName{"a", "a"} }, "budget \"a\""},
		{"most budgets", func(g *GroupSpec) {
			g.Budgets = []BudgetName{"a", "b", "c", "d", "e", "f", "g", "h"}[:maxShared]
		}, ""},
		{"too many budgets", func(g *GroupSpec) {
			g.Budgets = []BudgetName{"a", "b", "c", "d", "e", "f", "g", "h", "i"}[:maxShared+1]
		}, "one of more than"},
		{"budget of nothing", func(g *GroupSpec) {
			g.Eviction.Order, g.Budget = OrderStopFirst, &BudgetSpec{MinReady: &Amount{N: 2}}
		}, "no drain could ever finish"},
		{"budget that blocks", func(g *GroupSpec) {
			g.Eviction.Order, g.Budget = OrderStopFirst, &BudgetSpec{MinReady: &Amount{N: 2}, Blocking: true}
		}, ""},
		{"budget of one", func(g *GroupSpec) {
			g.Eviction.Order, g.Budget = OrderStopFirst, &BudgetSpec{MinReady: &Amount{N: 1}}
		}, ""},
		{"budget with a surge", func(g *GroupSpec) { g.Budget = &BudgetSpec{MinReady: &Amount{N: 2}} }, ""},
		{"constraint of nothing", func(g *GroupSpec) { g.Constraints[0].Attribute = "x" }, "attribute \"x\" is unknown"},
		{"affinity of nothing", func(g *GroupSpec) { g.Affinities[0].Attribute = "x" }, "attribute \"x\" is unknown"},
		{"affinity of no weight", func(g *GroupSpec) { g.Affinities[0].Weight = 0 }, "weight is 0"},
		{"lightest affinity", func(g *GroupSpec) { g.Affinities[0].Weight = -100 }, ""},
		{"light affinity", func(g *GroupSpec) { g.Affinities[0].Weight = -101 }, "weight is -101"},
		{"heaviest affinity", func(g *GroupSpec) { g.Affinities[0].Weight = 100 }, ""},
		{"heavy affinity", func(g *GroupSpec) { g.Affinities[0].Weight = 101 }, "weight is 101"},
		{"distinct by nothing", func(g *GroupSpec) { g.Distinct = []string{"x"} }, "attribute \"x\" is unknown"},
		{"spread by nothing", func(g *GroupSpec) { g.Spreads = []Spread{{Attribute: "x"}} }, "attribute \"x\" is unknown"},
		{"tolerated", func(g *GroupSpec) { g.Toleration = TolerationSpec{Unreachable: &hour} }, ""},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			group := soundGroup()
			tt.change(&group)
			spec := JobSpec{Name: "j", Groups: []GroupSpec{group}}.Expand()
			wants(t, spec.Check(), tt.says)
		})
	}
}

// wants checks that the message of the refusal contains the text says. If says is empty, there must be no refusal.
func wants(t *testing.T, refusal *Error, says string) {
	t.Helper()
	switch {
	case says == "" && refusal != nil:
		t.Errorf("refused: %v", refusal)
	case says != "" && (refusal == nil || refusal.Code != CodeInvalid || !strings.Contains(refusal.Message, says)):
		t.Errorf("got %v, want a refusal that says %s", refusal, says)
	}
}

// TestJobIsRefused: a job is refused if its name, its number of groups or one of its groups is invalid, or if its
// groups contradict each other.
func TestJobIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(j *JobSpec)
		says   string
		key    string // place of the mistake in the job
	}{
		{"two groups", func(*JobSpec) {}, "", ""},
		{"bad name", func(j *JobSpec) { j.Name = "a b" }, "job name", "name"},
		{"no group", func(j *JobSpec) { j.Groups = nil }, "has 0 groups", ""},
		{"too many groups", func(j *JobSpec) { j.Groups = make([]GroupSpec, maxGroups+1) }, "has 65 groups", ""},
		{"a group twice", func(j *JobSpec) { j.Groups[1].Name = "g" }, "two groups named g", "group/g"},
		{"a bad group", func(j *JobSpec) { j.Groups[1].Count = -1 }, "job j, group h: count is -1", "group/h/count"},
		{"a bad name of a group", func(j *JobSpec) { j.Groups[1].Name = "a b" }, "group name", "group/a b"},
		{"a static port twice", func(j *JobSpec) { j.Groups[1].Ports[1].Static = 9000 }, "both g/admin and h/admin",
			"group/h/port/admin/static"},
		{"a service twice", func(j *JobSpec) { j.Groups[1].Services[0].Name = "s" }, "publishes the service s twice",
			"group/h/service/s"},
		{"exposed twice", func(j *JobSpec) { j.Groups[1].Services[0].Expose = 80 }, "exposes port 80 by both services",
			"group/h/service/t/expose"},
		{"exposed and static", func(j *JobSpec) { j.Groups[0].Services[0].Expose = 9001 }, "asks for the static port 9001",
			"group/g/service/s/expose"},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			first, second := soundGroup(), soundGroup()
			second.Name, second.Services[0].Name, second.Services[0].Expose = "h", "t", 0
			second.Ports[1].Static = 9001
			spec := JobSpec{Name: "j", Groups: []GroupSpec{first, second}}
			tt.change(&spec)
			spec = spec.Expand()
			refusal := spec.Check()
			wants(t, refusal, tt.says)
			if refusal != nil && refusal.Key != tt.key {
				t.Errorf("the mistake is at %q, want %q", refusal.Key, tt.key)
			}
		})
	}
	most := JobSpec{Name: "j"}
	for i := range maxGroups {
		g := GroupSpec{Name: fmt.Sprint("g", i), Count: 1, Exec: ExecSpec{Command: "/bin/x"}}
		most.Groups = append(most.Groups, g)
	}
	most = most.Expand()
	wants(t, most.Check(), "")
}
