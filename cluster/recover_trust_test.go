package cluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A snapshot is recovered into a directory that has the keys of a server, and they stay, also if the recovery fails.
// The server revokes all tokens of the snapshot before it answers, and takes newer keys of agents.
func TestRecoverKeepsKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		s := r.start(1, func(c *Config) { c.BootstrapExpect, c.Gossip.Join = 1, nil })
		r.leader(time.Minute)
		hash := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
		n1 := model.Subject{Kind: model.SubjectAgent, Name: "n1"}
		s.trusts(hash(1), n1)
		var saved bytes.Buffer
		if err := s.Save(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		s.crash()
		r.mu.Lock()
		r.servers = map[string]*rigServer{}
		r.mu.Unlock()
		dir := t.TempDir()
		for _, name := range []string{"tls", "keyring"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name, "key"), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		keysStay := func() {
			t.Helper()
			for _, name := range []string{"tls", "keyring"} {
				if b, err := os.ReadFile(filepath.Join(dir, name, "key")); string(b) != name {
					t.Fatalf("%s has %q: %v", name, b, err)
				}
			}
		}
		cfg := RecoverConfig{DataDir: dir, Cluster: "test", Address: host(2) + ":7640", Supersedes: "L1,x",
			Keep: []string{"tls", "keyring"}, Snapshot: bytes.NewReader(saved.Bytes())}
		if _, err := Recover(cfg); !errors.Is(err, &model.Error{Code: model.CodeInvalid}) {
			t.Fatalf("superseded a lineage that can't be: %v", err)
		}
		keysStay()
		if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
			t.Fatalf("the directory has %v: %v", left, err)
		}
		cfg.Supersedes, cfg.Snapshot = "", bytes.NewReader(saved.Bytes())
		recovered, err := Recover(cfg)
		if err != nil {
			t.Fatal(err)
		}
		keysStay()
		if recovered.State.JoinTokens.Len() != 1 || recovered.State.TrustMembers.Len() != 1 {
			t.Errorf("the recovered state has %d tokens and %d members", recovered.State.JoinTokens.Len(),
				recovered.State.TrustMembers.Len())
		}
		s = r.start(2, func(c *Config) { c.DataDir, c.Gossip.Join = dir, nil })
		r.leader(time.Minute)
		eventually(t, time.Minute, "the recovery is in the state", func() bool {
			return s.machine.Current().Incarnation == recoveryRaise
		})
		now := s.machine.State()
		token, _ := now.JoinTokens.Get("aaaaaaaaaaaa")
		member, _ := now.TrustMemberOf(n1)
		if token.RevokedIndex == 0 || !member.Counts(hash(9)) {
			t.Errorf("the token is %+v, the member %+v", token, member)
		}
		if !now.PersonVoid("alice", recovered.State.MomentNumber()) || now.PersonVoid("alice", now.MomentNumber()) {
			t.Error("certificates of people from before the recovery count, or those from after it don't")
		}
		if err := fsm.Check(now); err != nil {
			t.Error(err)
		}
	})
}

// trusts makes keys and a token that the server's state lacks, and admits members with them.
func (s *rigServer) trusts(hash []byte, members ...model.Subject) {
	s.rig.t.Helper()
	commands := []fsm.Command{
		&fsm.KeyPut{Name: "data/1", Version: 1, Phase: model.KeyActive, Under: "kek", Sealed: hash},
		&fsm.KeyPut{Name: "ca/1", Version: 1, Phase: model.KeyActive, Under: "data/1", Sealed: hash, Public: hash},
		&fsm.TokenCreate{ID: "aaaaaaaaaaaa", Role: "agent", Verifier: hash, TTL: model.Hour, Uses: 20},
	}
	for _, m := range members {
		commands = append(commands, &fsm.MemberAdmit{Subject: m, Key: hash, NotAfter: 1, Token: "aaaaaaaaaaaa",
			Verifier: hash})
	}
	s.commit(commands...)
}

// commit commits each command by itself.
func (s *rigServer) commit(commands ...fsm.Command) {
	s.rig.t.Helper()
	for _, c := range commands {
		results, err := s.Propose(s.rig.t.Context(), fsm.Entry{Actor: "cli:alice", Groups: [][]fsm.Command{{c}}})
		if err != nil || results[0].Refusal != nil {
			s.rig.t.Fatal(err, results)
		}
	}
}

// Three lineages supersede each other, and each is recovered from a directory that knows nothing of those before. Each
// lineage admits a member, and takes restores that the next one can't know of. A revocation in the newest lineage makes
// void what the earlier ones issued, and so does the recovery for people.
func TestRecoverVoidsSuperseded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		hash := bytes.Repeat([]byte{1}, 32)
		n1 := model.Subject{Kind: model.SubjectAgent, Name: "n1"}
		r.leader(time.Minute).trusts(hash, n1)
		r.agree(5 * time.Second)
		all := r.all()
		for _, s := range all {
			s.crash()
		}
		r.forget(all...)
		var issued uint64 // the number of the newest certificate of a lineage that is superseded
		supersedes := ""
		for i, old := range all {
			cfg := RecoverConfig{DataDir: old.dir, Cluster: "test", Address: host(i+1) + ":7640", Supersedes: supersedes}
			if _, err := Recover(cfg); err != nil {
				t.Fatal(err)
			}
			s := r.start(i+1, func(c *Config) { c.DataDir, c.Gossip.Join = old.dir, nil })
			r.leader(time.Minute)
			eventually(t, time.Minute, "the recovery is in the state", func() bool { return s.machine.Current().Unconfirmed })
			if now := s.machine.State(); !now.PersonVoid("alice", issued) {
				t.Errorf("a person's certificate %d of a superseded lineage counts at %d", issued, now.MomentNumber())
			}
			s.commit(&fsm.MemberRevoke{Subject: n1})
			row, _ := s.machine.Current().TrustMemberOf(n1)
			if row.VoidBefore <= issued {
				t.Errorf("a certificate %d of a superseded lineage counts after the revocation at %d", issued, row.VoidBefore)
			}
			s.commit(&fsm.TokenCreate{ID: "bbbbbbbbbbbb", Role: "agent", Verifier: hash, TTL: model.Hour, Uses: 2},
				&fsm.MemberAdmit{Subject: n1, Key: bytes.Repeat([]byte{byte(2 + i)}, 32), NotAfter: 1, Token: "bbbbbbbbbbbb",
					Verifier: hash})
			for range 5 - i { // the oldest lineage has the most entries and restores
				var saved bytes.Buffer
				if err := s.Save(t.Context(), &saved); err != nil {
					t.Fatal(err)
				}
				if err := s.Restore(t.Context(), &saved); err != nil {
					t.Fatal(err)
				}
			}
			r.mustRegister("n1")
			now := s.machine.State()
			issued, supersedes = now.MomentNumber(), s.History().Lineage()
			if err := fsm.Check(now); err != nil {
				t.Error(err)
			}
			s.crash()
			r.forget(s)
		}
	})
}
