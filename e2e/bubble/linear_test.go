package bubble

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/e2e/linear"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// linearBounds limits the age of default and stale reads. Default is a little more than the leader's lease of 500 ms: a
// read that raft accepts just before the lease expires is answered a moment later. Slack covers the lag of a follower,
// which is a commit interval and a few network delays.
var linearBounds = linear.Bounds{Default: 600 * time.Millisecond, Slack: 400 * time.Millisecond}

// Clients read and write while servers are killed, links are slow, and servers are cut off in one or both directions.
// Consistent reads and all writes are linearizable. An acknowledged write is in the state once (S4). Versions and
// indexes only grow (S8). Default and stale reads are no older than linearBounds allows.
func TestLinear(t *testing.T) {
	total := 0
	seeds, err := seedsOf(t.Name(), 1, os.Getenv)
	must(t, err)
	for _, seed := range seeds {
		t.Run("", func(t *testing.T) {
			t.Logf("OUTSPAN_SEED=%d", seed)
			h, faults := linearHistory(t, seed)
			v := h.Judge(linearBounds, artifacts(t, seed))
			total += v.Figures.Operations
			t.Logf("%s", v.Figures)
			for _, text := range append(v.Violations, v.Undecided...) {
				t.Error(text)
			}
			if t.Failed() {
				t.Logf("what was done:\n%s", strings.Join(faults, "\n"))
			}
			if v.Figures.Writes < 100 || v.Figures.Reads < 100 {
				t.Errorf("too little was done to prove anything: %s", v.Figures)
			}
		})
	}
	t.Logf("%d operations", total)
}

// artifacts returns the directory in which pictures of a history are stored.
func artifacts(t *testing.T, seed uint64) string {
	t.Helper()
	return filepath.Join(t.ArtifactDir(), strings.ReplaceAll(t.Name(), "/", "-")+fmt.Sprintf("-%d", seed))
}

// linearHistory records what clients saw during 15 s of random faults in fake time. The caller judges the history
// outside the bubble, because the search for an order of the operations is limited in real time.
func linearHistory(t *testing.T, seed uint64) (h *linear.History, faults []string) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, seed))
	inBubble(t, options{nodes: 2}, func(t *testing.T, w *world) {
		began := time.Now()
		h = linear.NewHistory()
		load := &linear.Load{Doors: w.doors(), Nodes: []string{"n1", "n2"}, Jobs: []string{"cas-a", "cas-b"},
			Clients: 6 + random.IntN(6), Think: 60 * time.Millisecond, Seed: seed, Name: "v"}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			load.Run(ctx, h)
		}()
		c := chaos{w: w, random: random}
		c.run(15*time.Second, c.killServer, c.killLeader, c.cutServer, c.cutServer, c.slow)
		c.say("settle, %s after the beginning", time.Since(began))
		w.net.SetDelay(networkDelay)
		c.mend(time.Now().Add(time.Hour))
		w.net.Heal()
		stop()
		<-done
		faults = c.log
		w.settleHistory(load, h)
	})
	return h, faults
}

// settleHistory repeats the writes whose outcome is unknown, and reads everything once more through every server.
func (w *world) settleHistory(load *linear.Load, h *linear.History) {
	w.t.Helper()
	w.leader()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	must(w.t, load.Settle(ctx, h))
	for _, d := range load.Doors {
		d.Via.(*reach.HTTPTransport).CloseIdleConnections()
	}
}

// doors returns a connection from an operator's machine to each server.
func (w *world) doors() []linear.Door {
	w.t.Helper()
	creds, err := w.ca.Credentials(pki.RoleCLI, "clients")
	must(w.t, err)
	var all []linear.Door
	for _, s := range w.servers {
		via := transport.Dialer{Credentials: creds, Dial: w.net.Dialer("10.0.9.2")}.HTTPTransport()
		all = append(all, linear.Door{Name: s.name, Base: "https://" + s.address(), Via: via})
	}
	return all
}

// slow changes the delay of all links.
func (c *chaos) slow() {
	delay := networkDelay
	if c.random.IntN(2) == 0 {
		delay = time.Duration(c.random.IntN(40)) * time.Millisecond
	}
	c.say("delay %s", delay)
	c.w.net.SetDelay(delay)
}
