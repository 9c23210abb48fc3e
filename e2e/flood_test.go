package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// In TestFlood a client with an agent's certificate floods the servers. It sends registrations with warnings of 1 MiB
// and of 1,000 bytes, reports of thousands of unknown instances, and 100,000 writes with different request ids. No
// server's memory may grow by more than mayGrow, the reports must not fill the log, and a user's writes must succeed
// meanwhile. The servers must count their refusals.
func TestFlood(t *testing.T) {
	long(t)
	c := newCluster(t, options{servers: 3, agents: 1, unhurried: true})
	for _, m := range c.members() {
		settings := m.settings()
		settings["limits"] = "requests_per_second = 1000000" // the rate limit must not stop the flood
		m.configure(t, settings)
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	c.must(t, "tls", "cert", "create", "--dir", c.path("tls"), "--agent", "n9")
	largest := c.sampleMemory(t)
	before := largest()
	stop := c.writeAllTheTime(t)

	kept := c.logBytes(t)
	reported, tooMany := c.reportStrangers(t, "n9", 100)
	kept = c.logBytes(t) - kept
	t.Logf("%d reports were accepted, %d refused; the log grew by %d KB", reported, tooMany, kept>>10)
	if reported < 1 || tooMany < 20 || kept > 4<<20 {
		t.Errorf("%d reports were accepted, %d refused, and the log grew by %d KB", reported, tooMany, kept>>10)
	}
	registered, refused := c.registerLarge(t, "n9", 150)
	t.Logf("%d registrations were accepted, %d refused", registered, refused)
	if refused < 100 || registered < 1 {
		t.Errorf("%d registrations were accepted, %d refused", registered, refused)
	}
	refused += tooMany
	const ids = 100_000
	answered, busy := c.requestIDs(t, "n9", ids)
	t.Logf("%d writes with ids of their own had an answer, %d were refused unseen", answered, busy)
	if answered+busy != ids || busy == 0 {
		t.Errorf("of %d writes %d had an answer, %d were refused unseen", ids, answered, busy)
	}

	took := stop()
	slices.Sort(took)
	median, worst := took[len(took)/2], took[len(took)-1]
	t.Logf("%d writes of a person meanwhile: half took at most %s, all at most %s", len(took), median, worst)
	if median > time.Second || worst > patience {
		t.Errorf("writes of a person took %s (half of them), %s (all)", median, worst)
	}
	for name, after := range largest() {
		t.Logf("%s: %d MB, then at most %d MB", name, before[name]>>20, after>>20)
		if after-before[name] > mayGrow {
			t.Errorf("%s grew by %d MB, at most %d are allowed", name, (after-before[name])>>20, mayGrow>>20)
		}
	}
	if counted := c.countedRefusals(t); counted < refused+busy {
		t.Errorf("the servers counted %d refusals of %d", counted, refused+busy)
	}
}

// writeAllTheTime labels a node repeatedly until stop is called. stop returns how long each write took.
func (c *cluster) writeAllTheTime(t *testing.T) (stop func() []time.Duration) {
	var took []time.Duration
	var writing sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	writing.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			began := time.Now()
			if a := c.postTLS(t, "/v1/nodes/n1/label", fmt.Sprintf(`{"labels":{"round":"%d"}}`, i)); a.status != http.StatusOK {
				t.Errorf("a person's write had the answer %d %s", a.status, a.body)
			}
			took = append(took, time.Since(began))
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() []time.Duration {
		cancel()
		writing.Wait()
		return took
	}
}

func (c *cluster) agentClient(t *testing.T, name string) *transport.Client {
	t.Helper()
	credentials, err := transport.LoadCredentials(transport.CredentialsConfig{
		CAFile: c.path("tls", "ca.pem"), CertFile: c.path("tls", "agent-"+name+".pem"),
		KeyFile: c.path("tls", "agent-"+name+"-key.pem"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, s := range c.servers {
		addresses = append(addresses, "https://"+s.api())
	}
	agent, err := transport.NewClient(transport.ClientConfig{Addresses: addresses, Credentials: credentials, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Close)
	return agent
}

// reportStrangers registers a node and sends n reports of nearly 1 MiB about instances that the servers don't know.
func (c *cluster) reportStrangers(t *testing.T, name string, n int) (accepted, refused int64) {
	t.Helper()
	agent := c.agentClient(t, name)
	registered, err := agent.Register(t.Context(), c.registration(name, n, "w"))
	if err != nil {
		t.Fatal(err)
	}
	report := transport.ReportRequest{Node: model.NodeID(name), Epoch: registered.Epoch}
	for i := range 4000 {
		report.Instances = append(report.Instances, model.InstanceStatus{
			ID: model.InstanceID(fmt.Sprint("x", i)), Generation: 1, Observed: model.ObservedStopped,
			Reason: strings.Repeat("r", 200),
		})
	}
	for range n {
		_, err := agent.Report(t.Context(), report)
		if refusal := (*model.Error)(nil); err == nil {
			accepted++
		} else if errors.As(err, &refusal) {
			refused++
		} else {
			t.Fatal(err)
		}
	}
	return accepted, refused
}

// logBytes returns the size of the leader's data directory, which is mainly its log and snapshots.
func (c *cluster) logBytes(t *testing.T) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(c.leader(t).data(), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// registration returns the registration of an agent, with one warning.
func (c *cluster) registration(name string, incarnation int, warning string) transport.RegisterRequest {
	return transport.RegisterRequest{Node: model.NodeID(name), Name: name, Agent: model.AgentInfo{
		BootID: "b", Incarnation: strconv.Itoa(incarnation), Machine: "m", Address: c.agents[0].address,
		Warnings: []string{warning},
	}, Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 30}, PortMin: 20000, PortMax: 20999}}
}

// registerLarge registers a node n times with a warning of nearly 1 MiB, and n times with a warning of 1,000 bytes.
func (c *cluster) registerLarge(t *testing.T, name string, n int) (accepted, refused int64) {
	t.Helper()
	agent := c.agentClient(t, name)
	for i := range 2 * n {
		size := 1<<20 - 4096
		if i >= n {
			size = 1000
		}
		r := c.registration(name, i, strings.Repeat("w", size))
		_, err := agent.Register(t.Context(), r)
		if refusal := (*model.Error)(nil); err == nil {
			accepted++
		} else if errors.As(err, &refusal) {
			refused++
		} else {
			t.Fatalf("registration %d: %v", i, err)
		}
	}
	return accepted, refused
}

// requestIDs sends n requests for a drain of a node, with the certificate of the node's agent. Each has its own request
// id. refused is the number of answers with status 429 or 503.
func (c *cluster) requestIDs(t *testing.T, name string, n int) (answered, refused int64) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: c.tlsConfig(t, "agent-"+name),
		MaxConnsPerHost: 32, MaxIdleConnsPerHost: 32}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	address := "https://" + c.leader(t).api() + "/v1/nodes/" + name + "/drain?request_id="
	var next, good, bad atomic.Int64
	var sending sync.WaitGroup
	for range 32 {
		sending.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				r, err := client.Post(fmt.Sprintf("%s%064d", address, i), "application/json", strings.NewReader("{}"))
				if err != nil {
					t.Errorf("write %d: %v", i, err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
				if r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable {
					bad.Add(1)
				} else {
					good.Add(1)
				}
			}
		})
	}
	sending.Wait()
	return good.Load(), bad.Load()
}

var refusedSample = regexp.MustCompile(`(?m)^outspan_(?:requests|apply)_refused_total(?:\{[^}]*\})? (\S+)$`)

// countedRefusals returns the number of refusals that all servers together have counted.
func (c *cluster) countedRefusals(t *testing.T) (sum int64) {
	t.Helper()
	for _, s := range c.servers {
		var text string
		if err := s.get("/metrics", &text); err != nil {
			t.Fatal(err)
		}
		for _, m := range refusedSample.FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += int64(n)
		}
	}
	return sum
}
