package trust_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// fakeGossip has the keys of a member of the gossip pool. It is safe for concurrent use.
type fakeGossip struct {
	mu   sync.Mutex
	keys [][]byte
}

func newFakeGossip(t testing.TB, dir string) *fakeGossip {
	g := &fakeGossip{}
	for _, key := range must(transport.ManagedDir(dir).GossipKeys())(t) {
		g.keys = append(g.keys, key)
	}
	return g
}

func (g *fakeGossip) SetKeys(keys [][]byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys = keys
	return nil
}

func (g *fakeGossip) Keys() [][]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.keys)
}

// addKeys puts a second CA and a second gossip key into the state, and returns them.
func (s *site) addKeys() (root, gossip []byte) {
	t := s.r.t
	t.Helper()
	state := s.machine.Current()
	row, _ := state.ActiveKey(model.KeyData)
	ring := must(keyring.Open(filepath.Join(s.dir, keyring.FileName)))(t)
	data := must(ring.Unwrap(keyring.Wrapped{KEK: keyring.ID(row.Under), Bytes: row.Sealed}))(t)
	ca := must(transport.NewAuthority("c1", 0))(t)
	root, gossip = ca.Root().Raw, transport.NewGossipKey()
	for _, one := range []struct {
		name          model.KeyName
		plain, public []byte
	}{{"ca/2", must(ca.KeyDER())(t), root}, {"gossip/2", gossip, nil}} {
		s.do(&fsm.KeyPut{Name: one.name, Version: 1, Phase: model.KeyIncoming, Under: string(row.Name),
			Sealed: must(data.Seal(string(one.name), 1, one.plain))(t), Public: one.public})
	}
	return root, gossip
}

// claimed reports whether the row of a member has the digests of these keys.
func (s *site) claimed(who model.Subject, roots, gossip [][]byte) bool {
	row, ok := s.machine.Current().TrustMemberOf(who)
	return ok && bytes.Equal(row.Roots, pki.RootsDigest(roots)) && bytes.Equal(row.Gossip, pki.GossipDigest(gossip))
}

// sameKeys reports whether two lists have the same gossip keys, the same one first.
func sameKeys(a, b [][]byte) bool { return bytes.Equal(pki.GossipDigest(a), pki.GossipDigest(b)) }

// keysIn returns the roots and the gossip keys in a directory.
func keysIn(t testing.TB, dir transport.Managed) (roots, gossip [][]byte) {
	t.Helper()
	for _, root := range must(dir.Roots())(t) {
		roots = append(roots, root.Raw)
	}
	for _, key := range must(dir.GossipKeys())(t) {
		gossip = append(gossip, key)
	}
	return roots, gossip
}

// follower is a Follower of an agent whose calls reach an engine.
type follower struct {
	*trust.Follower
	gossip  *fakeGossip
	mu      sync.Mutex
	servers []string
	closed  func(pki.Identity, *x509.Certificate) bool
	ask     func(transport.TrustRequest) (transport.TrustNews, error) // replaces the engine
}

func (f files) follow(t testing.TB, s *site, name string) *follower {
	t.Helper()
	w := &follower{gossip: newFakeGossip(t, filepath.Dir(f.dir.Path()))}
	w.Follower = trust.NewFollower(trust.FollowerConfig{Name: name, Dir: f.dir, Credentials: f.creds,
		Reload: f.creds.Reload, Gossip: w.gossip, Logger: hclog.NewNullLogger(),
		CloseWhere: func(wrong func(pki.Identity, *x509.Certificate) bool) int {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.closed = wrong
			return 0
		},
		Servers: func(servers []string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.servers = servers
		},
		Ask: func(ctx context.Context, q transport.TrustRequest) (transport.TrustNews, error) {
			if w.ask != nil {
				return w.ask(q)
			}
			s.engine.Holds(who(model.SubjectAgent, name), q.Roots, q.Gossip)
			for end := time.Now().Add(time.Duration(q.Wait) * time.Millisecond); ; {
				news, err := s.engine.News()
				if err != nil || !bytes.Equal(news.Digest, q.Known) || !time.Now().Before(end) || ctx.Err() != nil {
					return news, err
				}
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		}})
	return w
}

// run runs the follower until the returned function is called.
func (f *follower) run(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = f.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// An agent uses a second CA and a second gossip key, and says so only once they are in its files: after a restart it
// would not know them otherwise.
func TestAgentLearnsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRig(t).found(30 * 24 * time.Hour)
		s.lead()
		s.run()
		p, n1 := s.agentFiles("n1"), who(model.SubjectAgent, "n1")
		oldRoots, oldKeys := keysIn(t, p.dir)
		f := p.follow(t, s, "n1")
		f.run(t)
		time.Sleep(time.Minute)
		if !s.claimed(n1, oldRoots, oldKeys) {
			t.Fatal("the agent does not say what it uses")
		}
		mended := block(t, filepath.Join(p.dir.Path(), "gossip.key"))
		root, gossip := s.addKeys()
		roots, keys := slices.Concat(oldRoots, [][]byte{root}), slices.Concat(oldKeys, [][]byte{gossip})
		time.Sleep(3 * time.Minute)
		if !sameKeys(f.gossip.Keys(), keys) || len(p.creds.Roots()) != 2 {
			t.Error("the new keys are not in use from memory")
		}
		if s.claimed(n1, roots, keys) {
			t.Error("the agent says that it uses a key that is not in its files")
		}
		mended()
		time.Sleep(3 * time.Minute)
		if !s.claimed(n1, roots, keys) {
			t.Error("the agent does not say that it uses the new keys")
		}
		if gotRoots, gotKeys := keysIn(t, p.dir); len(gotRoots) != 2 || !sameKeys(gotKeys, keys) {
			t.Errorf("the files have %d roots and %d keys", len(gotRoots), len(gotKeys))
		}
	})
}

// An agent refuses the certificate of a server, and that of an agent, that were revoked, also after a restart, and
// accepts those with which they return. It learns the addresses of the servers.
func TestAgentLearnsRevocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 30 * 24 * time.Hour
		r := newRig(t)
		s := r.found(life)
		s.lead()
		s.run()
		s2 := s.joinServer("s2", life)
		n2 := s.agentFiles("n2")
		p := s.agentFiles("n1")
		f := p.follow(t, s, "n1")
		stop := f.run(t)
		time.Sleep(time.Minute)
		s.do(&fsm.MemberRevoke{Subject: who(model.SubjectServer, "s2")},
			&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "n2")})
		r.mu.Lock()
		r.addresses = []string{"10.0.0.2:7640", "10.0.0.1:7640"}
		r.mu.Unlock()
		time.Sleep(2 * time.Minute)
		f.mu.Lock()
		if want := []string{"10.0.0.1:7640", "10.0.0.2:7640"}; !slices.Equal(f.servers, want) {
			t.Errorf("the agent knows the servers %q", f.servers)
		}
		if f.closed == nil || !f.closed(id(pki.RoleServer, "s2"), s2.creds.Leaf()) ||
			f.closed(id(pki.RoleServer, "s1"), s.creds.Leaf()) {
			t.Error("the wrong connections end")
		}
		f.mu.Unlock()
		stop()
		dial := func(what string, of *transport.Credentials, want model.Code) {
			t.Helper()
			if code := codeOf(f.Admit(of.Identity(), of.Leaf())); code != want {
				t.Errorf("%s: got %q, want %q", what, code, want)
			}
		}
		f = p.follow(t, s, "n1")
		dial("the revoked server", s2.creds, model.CodeMemberRevoked)
		dial("the revoked agent", n2.creds, model.CodeMemberRevoked)
		dial("another server", s.creds, "")
		if len(f.servers) != 2 {
			t.Errorf("after a restart the agent knows the servers %q", f.servers)
		}
		time.Sleep(time.Second) // a token must be newer than the revocation
		dial("the agent that has returned", s.agentFiles("n2").creds, "")
	})
}
