package trust_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// ring returns the keyring file of a server.
func (s *site) ring() *keyring.Ring {
	s.r.t.Helper()
	return must(keyring.Open(filepath.Join(s.dir, keyring.FileName)))(s.r.t)
}

// under returns the key of the keyring that encrypts the only data key of the state.
func (s *site) under() keyring.ID {
	s.r.t.Helper()
	rows := s.machine.Current().KeysOf(model.KeyData)
	if len(rows) != 1 {
		s.r.t.Fatalf("the state has %d data keys", len(rows))
	}
	return keyring.ID(rows[0].Under)
}

// three starts a cluster of s1, which leads, s2 and s3.
func three(t *testing.T) (r *rig, s1, s2, s3 *site) {
	t.Helper()
	r = newRig(t)
	s1 = r.found(time.Hour)
	s1.lead()
	s2, s3 = s1.joinServer("s2", time.Hour), s1.joinServer("s3", time.Hour)
	r.addresses = []string{"s1", "s2", "s3"}
	return r, s1, s2, s3
}

// A rotation puts the data key under a new key that every server has. The key before stays in all files. Certificates
// are signed as before, and a machine that joins afterwards gets both keys.
func TestRotateKeyring(t *testing.T) {
	_, s1, s2, s3 := three(t)
	before := s1.under()
	for _, s := range []*site{s1, s2, s3} {
		s.run()
	}
	dry := must(s1.engine.RotateKeyring(t.Context(), "cert:alice", true))(t)
	if !dry.DryRun || dry.Key != "" || len(dry.Servers) != 3 || s1.under() != before || len(s2.ring().IDs()) != 1 {
		t.Errorf("after a dry run %+v the data key is under %s, and s2 has %v", dry, s1.under(), s2.ring().IDs())
	}
	got := must(s1.engine.RotateKeyring(t.Context(), "cert:alice", false))(t)
	next := keyring.ID(got.Key)
	if got.Before != string(before) || next == before || s1.under() != next {
		t.Fatalf("%+v; the data key was under %s, and is under %s", got, before, s1.under())
	}
	var by []model.Actor
	for _, e := range s1.machine.Current().Events.All() {
		if e.Subject == "key/data/2" {
			by = append(by, e.Actor)
		}
	}
	if !slices.Equal(by, []model.Actor{"cert:alice"}) {
		t.Errorf("the events of the new key name %q", by)
	}
	s4 := s1.joinServer("s4", time.Hour)
	for _, s := range []*site{s1, s2, s3, s4} {
		eventually(t, s.name+" uses the new key", func() bool {
			return slices.Equal(s.ring().IDs(), []keyring.ID{next, before})
		})
	}
	list := must(s1.engine.Keyring(t.Context()))(t)
	if len(list.Keys) != 2 || list.Keys[0].ID != got.Key || !list.Keys[0].Active || !list.Keys[0].Needed ||
		list.Keys[1].Active || list.Keys[1].Needed || list.Keys[0].Created.IsZero() || len(list.Servers) != 4 {
		t.Errorf("the list is %+v", list)
	}
	for _, s := range list.Servers {
		if !s.Complete || !s.Answers || s.Error != "" || len(s.Lacks) != 0 {
			t.Errorf("server %+v", s)
		}
	}
	_, err := s2.engine.RotateKeyring(t.Context(), "cert:alice", false)
	wantCode(t, err, model.CodeNoLeader)
}

// A rotation is refused while a server of the configuration does not answer or lacks a key. It names the server, and
// makes no key.
// Whoever has the old data key can't open the rows that a rotation of the keyring has written.
func TestRotatedKeyringHasANewDataKey(t *testing.T) {
	r, s1, s2, _ := three(t)
	before := s1.machine.State()
	old, _ := before.ActiveKey(model.KeyData)
	thief := must(s1.ring().Unwrap(keyring.Wrapped{KEK: keyring.ID(old.Under), Bytes: old.Sealed}))(t)
	var once atomic.Bool
	r.before = func() error { // another rotation at the same time changes a row
		if !once.Swap(true) {
			s1.do(must(s1.engine.RotateCA(s1.machine.Current(), api.RotateCABody{}))(t)...)
		}
		return nil
	}
	must(s1.engine.RotateKeyring(t.Context(), "cert:alice", false))(t)
	rows := 0
	for _, s := range []*site{s1, s2} {
		for name, row := range s.machine.Current().TrustKeys.All() {
			if name.Kind() == model.KeyData {
				continue
			}
			rows++
			was, _ := before.TrustKeys.Get(name)
			if _, err := thief.Open(string(name), row.Version, row.Sealed); err == nil {
				t.Errorf("the old data key opens version %d of %s", row.Version, name)
			}
			if was != nil && (was.Phase != row.Phase || !bytes.Equal(was.Public, row.Public) || was.At != row.At) {
				t.Errorf("%s was %+v, and is %+v", name, was, row)
			}
		}
	}
	if rows != 6 {
		t.Errorf("%d rows; two CAs and a gossip key are on each server", rows)
	}
	der, _ := request(t, pki.RoleAgent, "n1")
	must(s2.join(s2.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t)
}

func TestRotationNeedsEveryServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s1, s2, _ := three(t)
		r.dead = []string{"s9"}
		_, err := s1.engine.RotateKeyring(t.Context(), "cert:alice", false)
		wantCode(t, err, model.CodeConflict)
		refusal, _ := errors.AsType[*model.Error](err)
		if !strings.Contains(refusal.Message, "s9") || strings.Contains(refusal.Message, "s2") ||
			!strings.Contains(refusal.Hint, "outspan server remove s9") {
			t.Errorf("%s; %s", refusal.Message, refusal.Hint)
		}
		dry := must(s1.engine.RotateKeyring(t.Context(), "cert:alice", true))(t)
		if last := dry.Servers[len(dry.Servers)-1]; last.Name != "s9" || last.Answers || last.Complete || last.Error == "" {
			t.Errorf("a dry run shows %+v", last)
		}
		r.dead = nil
		if err := os.Remove(filepath.Join(s2.dir, keyring.FileName)); err != nil {
			t.Fatal(err)
		}
		s2 = r.start("s2", s2.dir, time.Hour)
		_, err = s1.engine.RotateKeyring(t.Context(), "cert:alice", false)
		wantCode(t, err, model.CodeConflict)
		if !strings.Contains(err.Error(), "lack keys of the keyring: s2") {
			t.Error(err)
		}
		if n := len(s1.ring().IDs()); n != 1 {
			t.Errorf("s1 has %d keys", n)
		}
		s2.run()
		time.Sleep(5 * time.Second)
		must(s1.engine.RotateKeyring(t.Context(), "cert:alice", false))(t)
	})
}

// A rotation whose leader ends at any step is repeated by the next leader, and succeeds. Every server can then decrypt
// the state, and no row needs the first key.
func TestRotationAfterChangeOfLeader(t *testing.T) {
	cut := errors.New("the leader is gone")
	notCommitted := model.Refuse(model.CodeNoLeader, "lost")
	unknown := model.Refuse(model.CodeUnknownOutcome, "lost")
	steps := []struct {
		name      string
		stop      func(r *rig)
		committed bool
	}{
		{"before the key is handed out", func(r *rig) {
			r.lost = func(_, question string) error { return when(question == "trust-take-key", cut) }
		}, false},
		{"after one server has the key", func(r *rig) {
			r.lost = func(to, question string) error { return when(question == "trust-take-key" && to == "s3", cut) }
		}, false},
		{"before the proofs", func(r *rig) {
			var given atomic.Bool // questions are asked at the same time
			r.lost = func(_, question string) error {
				if question == "trust-take-key" {
					given.Store(true)
				}
				return when(given.Load() && question == "trust-prove", cut)
			}
		}, false},
		{"before the commit", func(r *rig) { r.before = func() error { return notCommitted } }, false},
		{"after the commit", func(r *rig) { r.after = func() error { return unknown } }, true},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			r, s1, s2, s3 := three(t)
			first := s1.under()
			step.stop(r)
			if _, err := s1.engine.RotateKeyring(t.Context(), "cert:alice", false); err == nil {
				t.Fatal("it succeeded")
			}
			if got := s2.under() != first; got != step.committed {
				t.Errorf("committed: %v", got)
			}
			r.lost, r.before, r.after, r.leader = nil, nil, nil, "s2"
			for _, s := range []*site{s1, s2, s3} {
				s.run()
			}
			next := keyring.ID(must(s2.engine.RotateKeyring(t.Context(), "cert:alice", false))(t).Key)
			for _, s := range []*site{s1, s2, s3} {
				if s.under() != next || next == first {
					t.Errorf("%s: the data key is under %s; the first key is %s, the next %s", s.name, s.under(), first, next)
				}
				eventually(t, s.name+" uses the new key", func() bool { return s.ring().Active() == next })
				if !slices.Contains(s.ring().IDs(), first) {
					t.Errorf("%s has lost the first key: %v", s.name, s.ring().IDs())
				}
			}
			der, _ := request(t, pki.RoleAgent, "n1")
			must(s2.join(s2.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t)
		})
	}
}

func when(yes bool, err error) error {
	if yes {
		return err
	}
	return nil
}

// A rotation that failed is repeated by the same leader with the key that it has made.
func TestFailedRotationsMakeOneKey(t *testing.T) {
	r, s1, s2, _ := three(t)
	r.before = func() error { return model.Refuse(model.CodeTimeout, "busy") }
	for range 3 {
		_, err := s1.engine.RotateKeyring(t.Context(), "cert:alice", false)
		wantCode(t, err, model.CodeTimeout)
	}
	if n := len(s2.ring().IDs()); n != 2 {
		t.Errorf("s2 has %d keys", n)
	}
	r.before = nil
	next := must(s1.engine.RotateKeyring(t.Context(), "cert:alice", false))(t).Key
	if ids := s1.ring().IDs(); len(ids) != 2 || string(ids[0]) != next {
		t.Errorf("s1 has %v, and uses %s", ids, next)
	}
}

// A server that joins while the keyring is rotated gets the new key before the commit.
func TestServerJoinsDuringRotation(t *testing.T) {
	r, s1, _, _ := three(t)
	keys := s1.ring().Keys()
	var s4 *site
	r.lost = func(to, question string) error {
		if question == "trust-take-key" && to == "s3" && s4 == nil {
			s4 = s1.joinServer("s4", time.Hour)
			// The reply to its join was sent before the new key was made.
			if err := os.Remove(filepath.Join(s4.dir, keyring.FileName)); err != nil {
				return err
			}
			must(keyring.Create(filepath.Join(s4.dir, keyring.FileName), keys...))(t)
			s4 = r.start("s4", s4.dir, time.Hour)
		}
		return nil
	}
	next := keyring.ID(must(s1.engine.RotateKeyring(t.Context(), "cert:alice", false))(t).Key)
	if ids := s4.ring().IDs(); !slices.Contains(ids, next) {
		t.Errorf("s4 has %v, and the state needs %s", ids, next)
	}
}

// An export from before a rotation still decrypts a state from then. A server that has only the export gets the new key
// from the others.
func TestExportFromBeforeRotation(t *testing.T) {
	const passphrase = "correct horse battery staple"
	r, s1, s2, _ := three(t)
	var export bytes.Buffer
	if err := s1.ring().Export(&export, passphrase); err != nil {
		t.Fatal(err)
	}
	old := s1.machine.State()
	next := keyring.ID(must(s1.engine.RotateKeyring(t.Context(), "cert:alice", false))(t).Key)
	keys := must(keyring.Import(&export, passphrase))(t)
	for _, ring := range []*keyring.Ring{
		must(keyring.Create(filepath.Join(t.TempDir(), "keyring"), keys...))(t), s1.ring()} {
		row, _ := old.ActiveKey(model.KeyData)
		if _, err := ring.Unwrap(keyring.Wrapped{KEK: keyring.ID(row.Under), Bytes: row.Sealed}); err != nil {
			t.Errorf("%s: %v", ring, err)
		}
	}
	path := filepath.Join(s2.dir, keyring.FileName)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	must(keyring.Create(path, keys...))(t)
	s2 = r.start("s2", s2.dir, time.Hour)
	err := s1.engine.MayVote(t.Context(), "s2", "s2")
	wantCode(t, err, model.CodeConflict)
	if !strings.Contains(err.Error(), fmt.Sprintf("it lacks %s", next)) {
		t.Error(err)
	}
	s2.run()
	eventually(t, "s2 has the new key", func() bool { return s2.ring().Active() == next })
	if err := s1.engine.MayVote(t.Context(), "s2", "s2"); err != nil {
		t.Error(err)
	}
}

// A server may vote only after it has proved, by its own name, that it has the keys of the state. Silence is no proof.
func TestMayVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s1, _, _ := three(t)
		if err := s1.engine.MayVote(t.Context(), "s2", "s2"); err != nil {
			t.Error(err)
		}
		wantCode(t, s1.engine.MayVote(t.Context(), "s2", "s3"), model.CodeConflict) // s2 has passed the question on to s3
		wantCode(t, s1.engine.MayVote(t.Context(), "s9", "s9"), model.CodeConflict) // silent
		for question, body := range map[string]map[int]any{
			"trust-prove":    {1: make([]byte, 32), 2: []string{string(s1.under())}},
			"trust-take-key": {1: s1.ring().Keys()[0].Encode()},
		} {
			ask := func(who model.Subject) error {
				_, _, err := s1.engine.AnswerPeer(transport.WithSubject(t.Context(), who), question,
					must(transport.EncodeCBOR(body))(t))
				return err
			}
			wantCode(t, ask(who(model.SubjectAgent, "n1")), model.CodeForbidden)
			if err := ask(who(model.SubjectServer, "s2")); err != nil {
				t.Errorf("%s of s2: %v", question, err)
			}
			if row, _ := s1.machine.Current().TrustMemberOf(who(model.SubjectServer, "s3")); row.RevokedIndex == 0 {
				s1.do(&fsm.MemberRevoke{Subject: row.Subject})
			}
			wantCode(t, ask(who(model.SubjectServer, "s3")), model.CodeMemberRevoked)
		}
	})
}
