package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

func TestMedianAhead(t *testing.T) {
	for _, tt := range []struct {
		others []time.Duration
		want   time.Duration
	}{
		{nil, 0},
		{[]time.Duration{time.Hour}, 0}, // of two clocks, nobody knows which one is right
		{[]time.Duration{-time.Hour, -time.Hour + time.Second}, -time.Hour + time.Second},
		{[]time.Duration{time.Hour, time.Second}, time.Second},
		{[]time.Duration{time.Hour, -time.Second}, 0},
		{[]time.Duration{time.Hour, time.Hour, time.Second}, time.Second},
	} {
		others := map[model.ServerID]time.Duration{}
		for i, d := range tt.others {
			others[model.ServerID(rune('a'+i))] = d
		}
		if got := medianAhead(others); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.others, got, tt.want)
		}
	}
}

// A server whose clock is an hour ahead leads for a while. The wall time in the state stays right within 5 s, and both
// leaders know which server's clock is wrong.
func TestLeaderWithAWrongClock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		var wrong [4]atomic.Int64
		for i := 1; i <= 3; i++ {
			r.start(i, func(c *Config) {
				c.Wall = func() time.Time { return time.Now().Add(time.Duration(wrong[i].Load())) }
			})
		}
		first := r.leader(time.Minute)
		r.mustRegister("n1")
		bad := r.other(first)
		near := func(when string) {
			if off := time.Since(bad.WallClock()).Abs(); off > 2*time.Second {
				t.Errorf("%s the server with the wrong clock takes the time of the cluster for %s off", when, off)
			}
		}
		wrong[hostNumber(bad.host)].Store(int64(time.Hour))
		near("After the jump,")
		time.Sleep(5 * time.Second)
		ahead := func(at *rigServer) time.Duration {
			for _, s := range at.Servers() {
				if s.ID == bad.ID() {
					return s.ClockAhead
				}
			}
			return 0
		}
		if got := ahead(first); (got - time.Hour).Abs() > time.Second {
			t.Errorf("the leader says that the wrong clock is %s ahead", got)
		}
		near("As a follower,")
		if err := first.TransferLeader(context.Background(), bad.ID()); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "the other leader", func() bool { return r.leader(30*time.Second) == bad })
		time.Sleep(5 * time.Second)
		if got := ahead(bad); (got - time.Hour).Abs() > time.Second {
			t.Errorf("the leader with the wrong clock says that it is %s ahead", got)
		}
		near("As the leader,")
		worst := time.Duration(0)
		for range 30 {
			r.mustRegister("n1")
			shown := time.UnixMilli(bad.machine.State().Wall)
			worst = max(worst, time.Since(shown).Abs())
			time.Sleep(time.Second)
		}
		if worst > 5*time.Second {
			t.Errorf("shown times were up to %s wrong", worst)
		}
	})
}
