package httpapi_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// fakeTrust has news that a test sets, and notes what members claim.
type fakeTrust struct {
	r      *rig
	mu     sync.Mutex
	news   transport.TrustNews
	claims []string
}

func (f *fakeTrust) News() (transport.TrustNews, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := f.news
	news.At = f.r.machine.Current().MomentNumber()
	return news, nil
}

func (f *fakeTrust) Holds(who model.Subject, roots, gossip []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims = append(f.claims, who.String()+" "+string(roots)+" "+string(gossip))
}

func (f *fakeTrust) set(digest string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.news = transport.TrustNews{Digest: []byte(digest), Roots: [][]byte{[]byte(digest)}, GossipKeys: [][]byte{{2}},
		Servers: []string{"10.0.0.1:7640"},
		Revoked: []transport.Revoked{{Kind: model.SubjectAgent, Name: "n9", VoidBefore: 7}}}
}

// An agent that knows nothing, or other news, gets the news at once. One that knows them waits for a change. The
// subject of a claim is that of the connection.
func TestAgentTrust(t *testing.T) {
	r := newRig(t)
	f := &fakeTrust{r: r}
	f.set("a")
	r.startWith("s2", func(c *httpapi.Config) { c.Trust = f })
	c := r.client(pki.RoleAgent, "n1", "s2")
	q := transport.TrustRequest{Name: "n1", Roots: []byte("r"), Gossip: []byte("g"), Wait: model.Minute}
	first := must(c.Trust(t.Context(), q))(t)
	want := f.news
	want.At = r.machine.Current().MomentNumber()
	if d := cmp.Diff(want, first); d != "" {
		t.Errorf("the news (-want +got):\n%s", d)
	}
	q.Known, q.At = first.Digest, first.At
	short := q
	short.Wait = 1
	same := must(c.Trust(t.Context(), short))(t)
	if string(same.Digest) != "a" || same.Roots != nil || same.Revoked != nil {
		t.Errorf("news that the agent knows: %+v", same)
	}
	done := make(chan transport.TrustNews, 1)
	ctx := t.Context()
	go func() {
		news, err := c.Trust(ctx, q)
		if err != nil {
			t.Errorf("trust: %v", err)
		}
		done <- news
	}()
	time.Sleep(20 * time.Millisecond)
	f.set("b")
	r.apply(&fsm.KeyPut{Name: "data/1", Version: 1, Phase: model.KeyActive, Under: "kek", Sealed: []byte{1}})
	if news := <-done; string(news.Digest) != "b" || len(news.Roots) != 1 {
		t.Errorf("after a change: %+v", news)
	}

	q.Name = "n2"
	_, err := c.Trust(t.Context(), q)
	wantCode(t, err, model.CodeForbidden)
	_, err = r.cli("s2").Trust(t.Context(), q)
	wantCode(t, err, model.CodeForbidden)
	_, err = r.client(pki.RoleAgent, "n1").Trust(t.Context(), transport.TrustRequest{Name: "n1"}) // s1 issues none
	wantCode(t, err, model.CodeNotSupported)
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.claims, func(one string) bool { return one != "agent:n1 r g" }) || len(f.claims) < 3 {
		t.Errorf("claimed: %q", f.claims)
	}
}

// A server whose state is older than what the agent has seen sends the agent to another one. The leader never does.
func TestAgentTrustOnALaggingServer(t *testing.T) {
	r := newRig(t)
	f := &fakeTrust{r: r}
	f.set("a")
	r.startWith("s2", func(c *httpapi.Config) { c.Trust = f })
	q := transport.TrustRequest{Name: "n1", At: r.machine.Current().MomentNumber() + 1}
	r.setLeader("s1")
	_, err := r.client(pki.RoleAgent, "n1", "s2").Trust(t.Context(), q)
	wantCode(t, err, model.CodeNotCaughtUp)
	r.setLeader("s2")
	if news := must(r.client(pki.RoleAgent, "n1", "s2").Trust(t.Context(), q))(t); string(news.Digest) != "a" {
		t.Errorf("the leader's news: %+v", news)
	}
}
