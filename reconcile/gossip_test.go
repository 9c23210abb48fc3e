package reconcile

import (
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// TestHealthOfWhatIsHeard checks the health of nodes that are not silent. Gossip alone makes such a node at most
// degraded (S13). A node becomes unreachable only if its agent gets no answers. It stays unreachable until the leader
// hears the node and knows that the agent gets answers again.
func TestHealthOfWhatIsHeard(t *testing.T) {
	dead, suspect, alive, none := fsm.GossipDead, fsm.GossipSuspect, fsm.GossipAlive, fsm.Gossip("")
	tests := []struct {
		was  model.Health
		live fsm.Liveness
		want model.Health
	}{
		{model.HealthOnline, fsm.Liveness{Gossip: dead}, model.HealthDegraded},
		{model.HealthOnline, fsm.Liveness{Gossip: suspect}, model.HealthDegraded},
		{model.HealthOnline, fsm.Liveness{Gossip: alive}, model.HealthOnline},
		{model.HealthDegraded, fsm.Liveness{Gossip: alive}, model.HealthOnline},
		{model.HealthDegraded, fsm.Liveness{Gossip: none}, model.HealthDegraded},
		{model.HealthOnline, fsm.Liveness{Gossip: none}, model.HealthOnline},
		{model.HealthUnreachable, fsm.Liveness{Gossip: none}, model.HealthOnline},
		{model.HealthUnreachable, fsm.Liveness{Gossip: alive}, model.HealthOnline},
		{model.HealthUnreachable, fsm.Liveness{Gossip: alive, Unheard: true}, model.HealthUnreachable},
		{model.HealthOnline, fsm.Liveness{Gossip: alive, Unheard: true}, model.HealthOnline},
		{model.HealthOnline, fsm.Liveness{Gossip: alive, Deaf: model.Second}, model.HealthUnreachable},
		{model.HealthDegraded, fsm.Liveness{Gossip: dead, Deaf: 1}, model.HealthUnreachable},
	}
	for _, tt := range tests {
		if got, _ := healthOf(&fsm.Node{Health: tt.was}, tt.live); got != tt.want {
			t.Errorf("a node that was %s with %+v is %s, want %s", tt.was, tt.live, got, tt.want)
		}
	}
}
