package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestLeaderKills kills the leader as many times as OUTSPAN_KILLS says, by default 20. At every second kill, another
// server was just started again and may still lag. There are jobs of every role, with and without a lease. The kernel
// shows that no program of these jobs exits, and no acknowledged write is lost.
func TestLeaderKills(t *testing.T) {
	long(t)
	kills := 20
	if text := os.Getenv("OUTSPAN_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	c := startCluster(t, options{servers: 3, agents: 3})
	port := c.freePort(t)
	jobs := append(c.everyRole(port),
		job{name: "leased", count: 2, more: "    exclusive {\n      lease = \"10s\"\n    }\n" + apart})
	for _, j := range jobs {
		c.run(t, j)
	}
	stopWatching, before := c.watchPrograms(), c.programs()
	line, stopWriting := c.holdLine(t, c.agents[0], port), c.writeOn(t)
	began := time.Now()
	for i := range kills {
		leader := c.leader(t)
		if i%2 == 1 {
			returns := c.servers[rand.IntN(len(c.servers))]
			for returns == leader {
				returns = c.servers[rand.IntN(len(c.servers))]
			}
			returns.Kill()
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
			returns.start(t)
		}
		leader.Kill()
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		leader.start(t)
		c.waitVoters(t, 3)
	}
	c.waitHeard(t)
	acknowledged := stopWriting()
	waitFor(t, "the last acknowledged write", patience, func() error {
		if got, err := strconv.Atoi(c.node(t, c.agents[0]).Labels["mark"]); err != nil || got < acknowledged {
			return fmt.Errorf("write %d was acknowledged, the mark is %d (%w)", acknowledged, got, err)
		}
		return nil
	})
	if err := line(); err != nil {
		t.Errorf("a connection through an exposed port: %v", err)
	}
	c.judgePrograms(t, before, stopWatching(), nil)
	t.Logf("%d leaders killed in %s, %d writes acknowledged", kills, time.Since(began).Round(time.Second), acknowledged)
}

// writeOn writes growing numbers to a label until stop is called. stop returns the last acknowledged number.
func (c *cluster) writeOn(t *testing.T) (stop func() int) {
	t.Helper()
	acknowledged, done := 0, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			a, err := c.post("/v1/nodes/"+c.agents[0].Name+"/label", fmt.Sprintf(`{"labels":{"mark":"%d"}}`, n))
			if err == nil && a.status == 200 {
				acknowledged = n
			}
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return func() int {
		close(done)
		wg.Wait()
		return acknowledged
	}
}
