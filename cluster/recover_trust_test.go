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
		for _, c := range []fsm.Command{
			&fsm.KeyPut{Name: "data/1", Version: 1, Phase: model.KeyActive, Under: "kek", Sealed: hash(1)},
			&fsm.KeyPut{Name: "ca/1", Version: 1, Phase: model.KeyActive, Under: "data/1", Sealed: hash(1), Public: hash(1)},
			&fsm.TokenCreate{ID: "aaaaaaaaaaaa", Role: "agent", Verifier: hash(1), TTL: model.Hour, Uses: 2},
			&fsm.MemberAdmit{Subject: n1, Key: hash(1), NotAfter: 1, Token: "aaaaaaaaaaaa", Verifier: hash(1)},
		} {
			results, err := s.Propose(t.Context(), fsm.Entry{Actor: "cli:alice", Groups: [][]fsm.Command{{c}}})
			if err != nil || results[0].Refusal != nil {
				t.Fatal(err, results)
			}
		}
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
			return s.machine.Current().Incarnation == 1
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
