package reconcile

import (
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// TestHealthOfWhatIsHeard: gossip makes a node that is heard degraded at most, whatever it says (S13); only its
// agent's own word makes it unreachable, and that stays until the agent tells this leader otherwise.
func TestHealthOfWhatIsHeard(t *testing.T) {
	dead, suspect, alive, none := fsm.GossipDead, fsm.GossipSuspect, fsm.GossipAlive, fsm.Gossip("")
	tests := []struct {
		was  fsm.Health
		live fsm.Liveness
		want fsm.Health
	}{
		{fsm.HealthOnline, fsm.Liveness{Gossip: dead}, fsm.HealthDegraded},
		{fsm.HealthOnline, fsm.Liveness{Gossip: suspect}, fsm.HealthDegraded},
		{fsm.HealthOnline, fsm.Liveness{Gossip: alive}, fsm.HealthOnline},
		{fsm.HealthDegraded, fsm.Liveness{Gossip: alive}, fsm.HealthOnline},
		{fsm.HealthDegraded, fsm.Liveness{Gossip: none}, fsm.HealthDegraded},
		{fsm.HealthOnline, fsm.Liveness{Gossip: none}, fsm.HealthOnline},
		{fsm.HealthUnreachable, fsm.Liveness{Gossip: none}, fsm.HealthOnline},
		{fsm.HealthUnreachable, fsm.Liveness{Gossip: alive}, fsm.HealthOnline},
		{fsm.HealthUnreachable, fsm.Liveness{Gossip: alive, Unheard: true}, fsm.HealthUnreachable},
		{fsm.HealthOnline, fsm.Liveness{Gossip: alive, Unheard: true}, fsm.HealthOnline},
		{fsm.HealthOnline, fsm.Liveness{Gossip: alive, Deaf: model.Second}, fsm.HealthUnreachable},
		{fsm.HealthDegraded, fsm.Liveness{Gossip: dead, Deaf: 1}, fsm.HealthUnreachable},
	}
	for _, tt := range tests {
		if got, _ := healthOf(&fsm.Node{Health: tt.was}, tt.live); got != tt.want {
			t.Errorf("a node that was %s with %+v is %s, want %s", tt.was, tt.live, got, tt.want)
		}
	}
}
