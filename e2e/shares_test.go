package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// In TestFairShares a person floods all three servers through many connections: writes with fresh request ids, reads
// that wait for a change, large answers, large answers that it does not read, and connections for nothing. Meanwhile
// another person's writes succeed, and so do commands over the socket of the leader. Only the flood is refused.
//
// In the servers each of these writes takes less than a second. The flood comes from a process of low priority, because
// its own work is not the servers', and shares the machine with all three of them.
func TestFairShares(t *testing.T) {
	long(t)
	c := newCluster(t, options{servers: 3, agents: 1, unhurried: true})
	for _, m := range c.members() {
		settings := m.settings()
		delete(settings, "limits") // the defaults
		if m.role == "server" {
			settings["audit"] = fmt.Sprintf("file = %q", c.path(m.Name+".audit"))
		}
		m.configure(t, settings)
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	c.must(t, "tls", "cert", "create", "--dir", c.path("tls"), "--cli", "flood")
	c.submitLarge(t)
	leader := c.leader(t)
	before, _ := c.timeWrites(t, 3*time.Second)
	t.Logf("writes before the flood: %s", before)
	alone := len(c.writesInServers(t))

	f := c.flood(t, "flood")
	time.Sleep(time.Second) // until all of its connections are open
	used := c.processorTime(t)
	during, connected := c.timeWrites(t, 15*time.Second)
	used = c.processorTime(t) - used
	local := timed{}
	for range 20 {
		began := time.Now()
		if err := leader.get("/v1/nodes", nil); err != nil {
			t.Errorf("a read over the socket: %v", err)
		}
		local.add(time.Since(began))
	}
	inside := timed{took: c.writesInServers(t)[alone:]}
	t.Logf("the flood got %s", f.stop(t))
	t.Logf("writes during the flood, as their sender saw them: %s", during)
	t.Logf("their connections: %s", connected)
	t.Logf("the same writes inside the servers: %s", inside)
	t.Logf("reads over the socket of the leader: %s", local)
	t.Logf("the servers used %s of processor time in 15 s", used.Round(time.Millisecond))
	for _, share := range []string{"requests", "watches", "bytes", "work"} {
		t.Logf("refused by the share %s: %d", share, c.refusedByShare(t, share))
	}
	if len(inside.took) != len(during.took) {
		t.Fatalf("the servers recorded %d of %d writes", len(inside.took), len(during.took))
	}
	if inside.max() >= time.Second {
		t.Errorf("a write took %s inside the servers", inside.max())
	}
	if connected.max() > 2*time.Second { // the limit of a handshake
		t.Errorf("a connection took %s", connected.max())
	}
	if during.max() > patience || local.max() > patience {
		t.Errorf("a write took %s, a read over the socket %s", during.max(), local.max())
	}
	if c.refusedByShare(t, "requests") == 0 || c.refusedByShare(t, "watches") == 0 {
		t.Error("the flood was not refused")
	}
}

// writesInServers returns how long the writes of "me" took inside the server that got each of them, by the servers'
// audit logs: from the whole head of the request to its answer, with its way to the leader and back.
func (c *cluster) writesInServers(t *testing.T) (took []time.Duration) {
	t.Helper()
	type line struct {
		Time               time.Time
		Subject, Operation string
		Millis             int64 `json:"duration_ms"`
	}
	var all []line
	for _, s := range c.servers {
		raw, err := os.ReadFile(c.path(s.Name + ".audit"))
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.Lines(string(raw)) {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			if l.Subject == "cert:me" && l.Operation == "label-node" {
				all = append(all, l)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return a.Time.Compare(b.Time) })
	for _, l := range all {
		took = append(took, time.Duration(l.Millis)*time.Millisecond)
	}
	return took
}

// processorTime returns how much processor time all servers together have used.
func (c *cluster) processorTime(t *testing.T) (sum time.Duration) {
	t.Helper()
	for _, s := range c.servers {
		sum += s.usage(t).CPU
	}
	return sum
}

// timed has how long each of some calls took.
type timed struct{ took []time.Duration }

func (d *timed) add(one time.Duration) { d.took = append(d.took, one) }

func (d timed) max() time.Duration { return slices.Max(d.took) }

func (d timed) String() string {
	sorted := slices.Sorted(slices.Values(d.took))
	at := func(percent int) time.Duration {
		return sorted[min(len(sorted)-1, len(sorted)*percent/100)].Round(time.Millisecond)
	}
	return fmt.Sprintf("%d; p50 %s, p99 %s, max %s", len(sorted), at(50), at(99), at(100))
}

// submitLarge submits a job whose description is nearly 1 MB and that starts nothing.
func (c *cluster) submitLarge(t *testing.T) {
	t.Helper()
	var env strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&env, `%s"V%d":%q`, strings.Repeat(",", min(i, 1)), i, strings.Repeat("v", 250))
	}
	a := c.postTLS(t, "/v1/jobs",
		fmt.Sprintf(`{"job":{"name":"large","groups":[{"name":"g","count":0,"exec":{"command":"/bin/true"},"env":{%s}}]}}`, &env))
	if a.status != http.StatusOK {
		t.Fatalf("status %d: %.300s", a.status, a.body)
	}
}

// timeWrites labels a node again and again with the certificate "me", through each server in turn. Like a command, each
// write has a connection of its own. It returns how long each write took, and how long its connection took of that.
func (c *cluster) timeWrites(t *testing.T, long time.Duration) (whole, connected timed) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: c.tlsConfig(t, "cli-me"), DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: patience}
	for end, i := time.Now().Add(long), 0; time.Now().Before(end); i++ {
		began := time.Now()
		trace := httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.add(time.Since(began)) }}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), &trace), http.MethodPost,
			fmt.Sprintf("https://%s/v1/nodes/n1/label?request_id=me%d", c.servers[i%3].api(), time.Now().UnixNano()),
			strings.NewReader(fmt.Sprintf(`{"labels":{"quiet":"%d"}}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		if err != nil {
			t.Errorf("write %d: %v", i, err)
			whole.add(time.Since(began))
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		whole.add(time.Since(began))
		if resp.StatusCode != http.StatusOK {
			t.Errorf("write %d through %s: status %d: %.300s", i, c.servers[i%3].Name, resp.StatusCode, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return whole, connected
}

// refusedByShare returns how many requests all servers together have refused because of a share.
func (c *cluster) refusedByShare(t *testing.T, share string) (sum int) {
	t.Helper()
	for _, s := range c.servers {
		var text string
		if err := s.get("/metrics", &text); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(line, fmt.Sprintf("outspan_share_refused_total{share=%q} ", share)); ok {
				var n float64
				_, _ = fmt.Sscan(rest, &n)
				sum += int(n)
			}
		}
	}
	return sum
}
