package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// In TestFairShares a person floods all three servers through many connections: writes with fresh request ids, reads
// that wait for a change, large answers, and large answers that it does not read. Meanwhile another person's writes
// succeed, and so do commands over the socket of the leader. Only the flood is refused.
func TestFairShares(t *testing.T) {
	long(t)
	c := newCluster(t, options{servers: 3, agents: 1, unhurried: true})
	for _, m := range c.members() {
		settings := m.settings()
		delete(settings, "limits") // the defaults
		m.configure(t, settings)
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	c.must(t, "tls", "cert", "create", "--dir", c.path("tls"), "--cli", "flood")
	c.submitLarge(t)
	leader := c.leader(t)
	before := c.timeWrites(t, 3*time.Second)
	t.Logf("writes before the flood: %s", before)

	f := c.flood(t, "flood")
	time.Sleep(time.Second) // until all of its connections are open
	during := c.timeWrites(t, 15*time.Second)
	local := timed{}
	for range 20 {
		began := time.Now()
		if err := leader.get("/v1/nodes", nil); err != nil {
			t.Errorf("a read over the socket: %v", err)
		}
		local.add(time.Since(began))
	}
	f.stop()
	t.Logf("writes during the flood: %s", during)
	t.Logf("reads over the socket of the leader: %s", local)
	t.Logf("the flood got %d answers and %d refusals (429 and 503)", f.answered.Load(), f.refused.Load())
	for _, share := range []string{"requests", "watches", "bytes", "work"} {
		t.Logf("refused by the share %s: %d", share, c.refusedByShare(t, share))
	}
	if during.max() > patience || local.max() > patience {
		t.Errorf("a write took %s, a read over the socket %s", during.max(), local.max())
	}
	if c.refusedByShare(t, "requests") == 0 || c.refusedByShare(t, "watches") == 0 {
		t.Error("the flood was not refused")
	}
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

// timeWrites labels a node again and again with the certificate "me", through each server in turn.
func (c *cluster) timeWrites(t *testing.T, long time.Duration) (d timed) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: c.tlsConfig(t, "cli-me")}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	for end, i := time.Now().Add(long), 0; time.Now().Before(end); i++ {
		began := time.Now()
		resp, err := client.Post(fmt.Sprintf("https://%s/v1/nodes/n1/label?request_id=me%d", c.servers[i%3].api(),
			time.Now().UnixNano()), "application/json", strings.NewReader(fmt.Sprintf(`{"labels":{"quiet":"%d"}}`, i)))
		if err != nil {
			t.Errorf("write %d: %v", i, err)
			d.add(time.Since(began))
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		d.add(time.Since(began))
		if resp.StatusCode != http.StatusOK {
			t.Errorf("write %d through %s: status %d: %.300s", i, c.servers[i%3].Name, resp.StatusCode, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return d
}

// flood sends as many requests as it can.
type flood struct {
	c                 *cluster
	config            *tls.Config
	ctx               context.Context
	cancel            context.CancelFunc
	running           sync.WaitGroup
	answered, refused atomic.Int64
}

// flood begins a flood with the certificate of a person.
func (c *cluster) flood(t *testing.T, name string) *flood {
	f := &flood{c: c, config: c.tlsConfig(t, "cli-"+name)}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	t.Cleanup(f.stop)
	for i := range 3 {
		address := "https://" + c.servers[i].api()
		var ids atomic.Int64
		f.many(24, func(int) (*http.Request, error) {
			return http.NewRequest(http.MethodPost,
				fmt.Sprintf("%s/v1/nodes/n1/label?request_id=f%d-%d", address, i, ids.Add(1)),
				strings.NewReader(fmt.Sprintf(`{"labels":{"flood":"%d"}}`, ids.Load())))
		})
		f.many(150, func(int) (*http.Request, error) {
			return http.NewRequest(http.MethodGet, address+"/v1/nodes?index=999999999&wait=20s", http.NoBody)
		})
		f.many(24, func(int) (*http.Request, error) {
			return http.NewRequest(http.MethodGet, address+"/v1/jobs/large", http.NoBody)
		})
		for range 30 {
			f.running.Go(func() { f.neverRead(c.servers[i].api()) })
		}
	}
	return f
}

func (f *flood) stop() {
	f.cancel()
	f.running.Wait()
}

// many sends requests from n goroutines, with a connection for each.
func (f *flood) many(n int, build func(int) (*http.Request, error)) {
	transport := &http.Transport{TLSClientConfig: f.config.Clone(), MaxIdleConnsPerHost: n, DisableCompression: true}
	client := &http.Client{Transport: transport}
	for k := range n {
		f.running.Go(func() {
			defer transport.CloseIdleConnections()
			for f.ctx.Err() == nil {
				r, err := build(k)
				if err != nil {
					return
				}
				r.Header.Set("Content-Type", "application/json")
				resp, err := client.Do(r.WithContext(f.ctx))
				if err != nil {
					f.pause(10 * time.Millisecond) // the servers limit the connections of one identity
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
					f.refused.Add(1)
					f.pause(5 * time.Millisecond) // so that the test itself leaves processor time for the servers
				} else {
					f.answered.Add(1)
				}
			}
		})
	}
}

func (f *flood) pause(d time.Duration) {
	select {
	case <-f.ctx.Done():
	case <-time.After(d):
	}
}

// neverRead asks for a large answer on one connection again and again, and reads nothing.
func (f *flood) neverRead(address string) {
	config := f.config.Clone()
	config.NextProtos = []string{"http/1.1"}
	for f.ctx.Err() == nil {
		conn, err := (&tls.Dialer{Config: config}).DialContext(f.ctx, "tcp", address)
		if err != nil {
			f.pause(100 * time.Millisecond)
			continue
		}
		_ = conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = conn.Write(bytes.Repeat([]byte("GET /v1/jobs/large HTTP/1.1\r\nHost: x\r\n\r\n"), 20))
		f.pause(5 * time.Second)
		_ = conn.Close()
	}
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
