package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// passing is a RoundTripper that counts the requests that a server sends to another server. If the channel hold is not
// nil, a request waits until hold is closed or the sender cancels the request.
type passing struct {
	http.RoundTripper
	mu             sync.Mutex
	now, most, sum int
	hold           chan struct{}
	cut            int // an answer breaks off after this many bytes; 0 means never
}

func (p *passing) RoundTrip(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.now++
	p.sum++
	p.most = max(p.most, p.now)
	hold, cut := p.hold, p.cut
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.now--
		p.mu.Unlock()
	}()
	if hold != nil {
		select {
		case <-hold:
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	resp, err := p.RoundTripper.RoundTrip(req)
	if err == nil && cut > 0 {
		resp.Body = &cutBody{ReadCloser: resp.Body, left: cut}
	}
	return resp, err
}

// cutBody is the body of an answer that breaks off. The field left is the number of bytes until then.
type cutBody struct {
	io.ReadCloser
	left int
}

func (c *cutBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// stopAll makes all later requests wait until letGo is called.
func (p *passing) stopAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = make(chan struct{})
}

func (p *passing) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.hold)
	p.hold = nil
}

func (p *passing) await(t *testing.T, what string, ok func(now, most, sum int) bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		now, most, sum := p.now, p.most, p.sum
		p.mu.Unlock()
		if ok(now, most, sum) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d requests are with the leader, at most %d were, %d in all", what, now, most, sum)
		}
	}
}

// relayRig returns a rig with a leader s1, a follower s2, and the node n2 with an instance.
func relayRig(t *testing.T) (*rig, *passing) {
	t.Helper()
	r := newRig(t, "s1", "s2")
	r.world()
	r.place("inst-c", 2, "01N2", model.ObservedPending)
	return r, r.servers["s2"].passing
}

func reportOf(generation uint64) transport.ReportRequest {
	return transport.ReportRequest{Node: "01N2", Epoch: 4,
		Instances: []model.InstanceStatus{{ID: "inst-c", Generation: generation, Observed: model.ObservedBooting}}}
}

// While four requests are at the leader, further calls of agents wait and then share requests. No call is lost, and
// each gets its own answer.
func TestAgentsShareRequestsToTheLeader(t *testing.T) {
	r, p := relayRig(t)
	agents := []*transport.Client{r.client(pki.RoleAgent, "n1", "s2"), r.client(pki.RoleAgent, "n9", "s2")}
	for range 20 {
		agents = append(agents, r.client(pki.RoleAgent, "n2", "s2"))
	}
	for i, agent := range agents { // each client opens its connection first
		_, _ = agent.Report(t.Context(), reportOf(uint64(10+i)))
	}
	thief, stranger, own := agents[0], agents[1], agents[2:]
	p.stopAll()
	p.most, p.sum = 0, 0
	const calls = 200
	asked, entries := &r.servers["s2"].asked, r.entries()
	before := asked.Load()
	var wg sync.WaitGroup
	indexes, failed := make([]uint64, calls), make([]error, calls)
	for i := range calls {
		wg.Go(func() {
			reply, err := own[i%len(own)].Report(t.Context(), reportOf(uint64(1000+i)))
			indexes[i], failed[i] = reply.Index, err
		})
	}
	var theft, unknown, invalid error
	wg.Go(func() { _, theft = thief.Report(t.Context(), reportOf(5000)) })
	wg.Go(func() {
		_, unknown = stranger.Report(t.Context(), transport.ReportRequest{Node: "01N9", Epoch: r.epoch("01N9")})
	})
	wg.Go(func() { _, invalid = own[0].Register(t.Context(), transport.RegisterRequest{Node: "01N2", Name: "n2"}) })
	p.await(t, "all calls, in as many requests as may be under way", func(now, _, _ int) bool {
		return now == 4 && asked.Load() == before+calls+3
	})
	time.Sleep(100 * time.Millisecond) // until all calls wait
	p.letGo()
	wg.Wait()
	for i, err := range failed {
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if e := r.machine.State(); indexes[i] == 0 || indexes[i] > e.Index {
			t.Errorf("call %d is at %d of %d", i, indexes[i], e.Index)
		}
	}
	for name, got := range map[model.Code]error{model.CodeForbidden: theft, model.CodeNotFound: unknown,
		model.CodeInvalid: invalid} {
		wantCode(t, got, name)
	}
	if inst, _ := r.machine.State().Instances.Get("inst-c"); inst.Status.Generation != 1000+calls-1 {
		t.Errorf("the newest report is not in the state: %+v", inst.Status)
	}
	if got := r.entries() - entries; got > calls {
		t.Errorf("%d entries of %d reports", got, calls)
	}
	if p.most > 4 || p.sum > 20 {
		t.Errorf("%d requests for %d calls, %d at once; want a tenth at most, and 4 at once", p.sum, calls+3, p.most)
	}
	for _, e := range r.log[entries:] {
		if e.Actor != "agent:n2" && e.Actor != model.ActorAgents {
			t.Errorf("an entry has the actor %s", e.Actor)
		}
	}
}

// Once another server leads, no call waits any longer for a leader that hangs.
func TestRelayLeavesAHungLeader(t *testing.T) {
	r, p := relayRig(t)
	r.start("s3", httpapi.Limits{RequestsPerSecond: 100_000})
	c := r.client(pki.RoleAgent, "n2", "s2")
	_, _ = c.Report(t.Context(), reportOf(10)) // opens the connection
	p.stopAll()
	const calls = 20
	failed := make(chan error, calls)
	for i := range calls {
		go func() {
			_, err := c.Report(t.Context(), reportOf(uint64(1000+i)))
			failed <- err
		}()
	}
	p.await(t, "requests to the old leader", func(now, _, _ int) bool { return now == 4 })
	r.setLeader("s3")
	p.mu.Lock()
	p.hold = nil // requests to the new leader do not wait
	p.mu.Unlock()
	if _, err := c.Report(t.Context(), reportOf(2000)); err != nil {
		t.Errorf("with a new leader: %v", err)
	}
	lost := 0
	for range calls {
		select {
		case err := <-failed:
			if err != nil {
				wantCode(t, err, model.CodeNoLeader)
				lost++
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a call waits for the leader that was")
		}
	}
	if lost == 0 {
		t.Error("no call was with the hung leader")
	}
}

// When the call that sends a shared request is canceled, the other calls in the request still get their answers.
func TestRelayOutlivesItsSender(t *testing.T) {
	r, p := relayRig(t)
	c := r.client(pki.RoleAgent, "n2", "s2")
	_, _ = c.Report(t.Context(), reportOf(10)) // opens the connection
	p.stopAll()
	ctx, hangUp := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() { _, _ = c.Report(ctx, reportOf(uint64(100+i))) })
	}
	p.await(t, "requests", func(now, _, _ int) bool { return now == 4 })
	const calls = 8
	failed := make([]error, calls)
	for i := range calls {
		wg.Go(func() { _, failed[i] = c.Report(t.Context(), reportOf(uint64(1000+i))) })
	}
	time.Sleep(100 * time.Millisecond) // until the calls wait
	hangUp()
	time.Sleep(100 * time.Millisecond)
	p.letGo()
	wg.Wait()
	for i, err := range failed {
		if err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	p.await(t, "nothing is left", func(now, _, _ int) bool { return now == 0 })
	if _, err := c.Report(t.Context(), reportOf(3000)); err != nil {
		t.Errorf("after all: %v", err)
	}
}

// The leader checks the agents' calls that a server forwards. It refuses a malformed batch as a whole. In a good batch,
// it refuses each bad call alone.
func TestRelayRefuses(t *testing.T) {
	type call struct {
		Call  transport.AgentCall `cbor:"1,keyasint"`
		Agent string              `cbor:"2,keyasint"`
		Body  []byte              `cbor:"3,keyasint"`
	}
	type answer struct {
		Body    []byte       `cbor:"1,keyasint,omitempty"`
		Problem *api.Problem `cbor:"2,keyasint,omitempty"`
	}
	r, _ := relayRig(t)
	c := transport.NewPeerClient(transport.Dialer{Credentials: must(r.ca.Credentials(pki.RoleServer, "s2"))(t)})
	t.Cleanup(c.Close)
	ask := func(server string, body []byte) ([]byte, error) {
		return c.AskPeer(t.Context(), r.servers[server].address, "relay", body)
	}
	good := call{transport.CallReport, "n2", must(transport.EncodeCBOR(reportOf(50)))(t)}
	for what, tt := range map[string]struct {
		server string
		body   []byte
		code   model.Code
	}{
		"garbage":          {"s1", []byte("\xff"), model.CodeInvalid},
		"too many":         {"s1", must(transport.EncodeCBOR(slices.Repeat([]call{good}, 257)))(t), model.CodeInvalid},
		"not at a leader":  {"s2", must(transport.EncodeCBOR([]call{good}))(t), model.CodeNoLeader},
		"nothing at all":   {"s1", nil, model.CodeInvalid},
		"bytes after that": {"s1", append(must(transport.EncodeCBOR([]call{good}))(t), 0), model.CodeInvalid},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := ask(tt.server, tt.body)
			wantCode(t, err, tt.code)
		})
	}
	r.panicAt("01N2")
	mixed := []call{
		{transport.CallServices, "n2", nil}, {200, "n2", nil}, {transport.CallReport, "n2", []byte("\xff")},
		{transport.CallReport, "n1", good.Body}, good,
	}
	var got []answer
	if err := transport.DecodeCBOR(must(ask("s1", must(transport.EncodeCBOR(mixed))(t)))(t), &got); err != nil ||
		len(got) != len(mixed) {
		t.Fatalf("%d answers, %v", len(got), err)
	}
	for i, want := range []model.Code{model.CodeNoRoute, model.CodeNoRoute, model.CodeInvalid,
		model.CodeForbidden, model.CodeInternal} {
		if p := got[i].Problem; p == nil || p.Code != want || len(p.Message) > 500 || got[i].Body != nil {
			t.Errorf("call %d: %s, want %s", i, fmt.Sprint(p), want)
		}
	}
}
