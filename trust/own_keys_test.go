package trust_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Each server does the same for itself, also one that does not lead.
func TestServersLearnKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 30 * 24 * time.Hour
		s1 := newRig(t).found(life)
		s1.lead()
		s2 := s1.joinServer("s2", life)
		s1.run()
		s2.run()
		mended := block(t, filepath.Join(s2.dir, "tls", "gossip.key"))
		root, gossip := s1.addKeys()
		oldRoots, oldKeys := keysIn(t, transport.ManagedDir(s1.dir))
		time.Sleep(20 * time.Minute)
		roots, keys := keysIn(t, transport.ManagedDir(s1.dir))
		if len(roots) != 2 || !bytes.Equal(roots[0], root) || len(keys) != 2 || !bytes.Equal(keys[1], gossip) {
			t.Errorf("s1 had %d roots and %d keys, and has %d and %d", len(oldRoots), len(oldKeys), len(roots), len(keys))
		}
		first, second := who(model.SubjectServer, "s1"), who(model.SubjectServer, "s2")
		if !s1.claimed(first, roots, keys) || s1.claimed(second, roots, keys) {
			t.Error("s1 does not say that it uses the new keys, or s2 says so without its file")
		}
		if !sameKeys(s2.gossip.Keys(), keys) || len(s2.creds.Roots()) != 2 {
			t.Error("s2 does not use the new keys from memory")
		}
		mended()
		time.Sleep(20 * time.Minute)
		if !s1.claimed(second, roots, keys) {
			t.Error("s2 does not say that it uses the new keys")
		}
	})
}

// Neither a server that starts with an older state, nor an agent that gets older news, goes back to older keys: they
// could not verify the others any more.
func TestOlderStatesChangeNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 30 * 24 * time.Hour
		r := newRig(t)
		s := r.found(life)
		s.lead()
		stop := s.run()
		p := s.agentFiles("n1")
		f := p.follow(t, s, "n1")
		stopAgent := f.run(t)
		time.Sleep(time.Minute)
		older := must(s.engine.News())(t)
		entries := len(r.log)
		s.addKeys()
		time.Sleep(20 * time.Minute)
		stop()
		stopAgent()

		again := p.follow(t, s, "n1")
		again.ask = func(q transport.TrustRequest) (transport.TrustNews, error) {
			time.Sleep(time.Second)
			if q.At <= older.At {
				t.Errorf("the agent has forgotten how new its keys are: %d", q.At)
			}
			return older, nil
		}
		again.run(t)
		r.stop(s)
		r.mu.Lock()
		r.log = r.log[:entries]
		r.mu.Unlock()
		back := r.start("s1", s.dir, life)
		back.run()
		time.Sleep(20 * time.Minute)
		for what, dir := range map[string]transport.Managed{"the agent": p.dir, "the server": transport.ManagedDir(s.dir)} {
			if roots, keys := keysIn(t, dir); len(roots) != 2 || len(keys) != 2 {
				t.Errorf("%s went back to %d roots and %d keys", what, len(roots), len(keys))
			}
		}
	})
}
