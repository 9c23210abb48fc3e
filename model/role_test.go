package model

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRolePresets: each role gives a group defaults. A key that the group sets replaces only its own default, so one
// toleration can be set without the other.
// proves A4, A5, A6, A7, A8, A9, A10, A11, A12, X15
func TestRolePresets(t *testing.T) {
	facts := &RoleCheckSpec{Exec: []string{"/bin/facts"}}
	shape := func(g GroupSpec) string {
		e, r := g.Eviction, g.Replacement
		return strings.Join([]string{string(e.Mode), strings.Join(e.When, " & "), string(e.Order), string(r.Mode),
			strings.Join(r.When, " & "), r.Identity + "/" + r.Data,
			g.Toleration.Unreachable.String(), g.Toleration.NotReady.String()}, ", ")
	}
	for role, want := range map[Role]string{
		RoleService: "always, , surge, always, , new/empty, 0s, 30s",
		RoleProbe:   "always, , stop_first, always, , new/empty, 5s, 5s",
		RoleFront:   "always, , surge, always, , new/empty, 15s, 15s",
		RoleWorker:  "always, , surge, always, , new/empty, 1m, 1m",
		RoleShardedData: "when, self.drained & !self.leads_shards, surge, when, led_shards.in_sync_followers, " +
			"new/empty, 5m, 5m",
		RoleQuorum: "when, !self.leader & group.leader_responding & group.followers_responding >= 1, stop_first, " +
			"when, old.confirmed_stopped, same/empty, 5m, 5m",
		RoleSingleton:      "never, , stop_first, never, , new/keep, forever, forever",
		RoleLeaderFollower: "when, !self.leader, surge, always, , new/empty, 5m, 5m",
		RoleSystem:         "last, , stop_first, restart, , new/empty, forever, forever",
	} {
		spec := JobSpec{Name: "j",
			Groups: []GroupSpec{{Name: "g", Count: 3, Role: role, Exec: ExecSpec{Command: "/bin/x"}, RoleCheck: facts}}}.Expand()
		if refusal := spec.Check(); refusal != nil {
			t.Errorf("%s: %v", role, refusal)
		}
		if diff := cmp.Diff(want, shape(spec.Groups[0])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
	}
	given := Minute
	spec := JobSpec{Name: "j", Groups: []GroupSpec{{
		Name: "g", Count: 3, Role: RoleQuorum, Exec: ExecSpec{Command: "/bin/x"},
		Eviction:    EvictionSpec{Mode: ModeAlways, Order: OrderSurge, SurgeWait: WaitStarted},
		Replacement: ReplacementSpec{When: []string{"group.ready >= 2"}, Identity: "new", Data: "keep"},
		Toleration:  TolerationSpec{Unreachable: &given},
	}}}.Expand()
	if refusal := spec.Check(); refusal != nil {
		t.Fatal(refusal)
	}
	if got, want := shape(spec.Groups[0]), "always, , surge, when, group.ready >= 2, new/keep, 1m, 5m"; got != want ||
		spec.Groups[0].OneHolder() {
		t.Errorf("with every key overridden: %s, one holder %v; want %s", got, spec.Groups[0].OneHolder(), want)
	}
}

// The hint about an unknown role lists all roles that exist.
func TestUnknownRole(t *testing.T) {
	spec := JobSpec{Name: "j", Groups: []GroupSpec{{Name: "g", Role: "boss", Exec: ExecSpec{Command: "/bin/x"}}}}.Expand()
	want := "use one of: service, probe, front, worker, sharded-data, quorum, singleton, leader-follower, local, " +
		"replicated, system"
	if refusal := spec.Check(); refusal == nil || refusal.Hint != want {
		t.Errorf("got %+v, want the hint %q", refusal, want)
	}
}

func TestParseGate(t *testing.T) {
	for text, code := range map[string]Code{
		"!self.leader": CodeIsLeader, "self.drained": CodeNotDrained, "!self.leads_shards": CodeNoInSyncFollower,
		"led_shards.in_sync_followers": CodeNoInSyncFollower,
		"group.leader_responding":      CodeQuorumNotHealthy, "group.followers_responding >= 2": CodeQuorumNotHealthy,
		"group.healthy":    CodeQuorumNotHealthy,
		"group.ready >= 3": "gate:group.ready >= 3", "old.confirmed_stopped": "gate:old.confirmed_stopped",
		"self.in_sync": "gate:self.in_sync", "!self.x_1.y": "gate:!self.x_1.y",
		"self.leader": "gate:self.leader", "!self.drained": "gate:!self.drained",
	} {
		g, refusal := ParseGate("  " + text + " ")
		if refusal != nil || g.String() != text || g.Code() != code {
			t.Errorf("%q: %+v, code %s, %v; want the code %s", text, g, g.Code(), refusal, code)
		}
	}
	for _, text := range []string{
		"", "self", "self.", "self.Leader", "!group.healthy", "group.ready", "group.ready >= 0", "group.ready > 1",
		"group.ready >= 1.5", "group.healthy >= 1", "group.followers_responding",
		"old.stopped", "led_shards.leader", "peers.leader", "!!self.leader", "self.leader >= 1", "group.ready>=1", "self.a b",
	} {
		if g, refusal := ParseGate(text); refusal == nil ||
			!strings.Contains(refusal.Hint, "group.followers_responding >= N") {
			t.Errorf("%q is taken for %+v: %v", text, g, refusal)
		}
	}
}
