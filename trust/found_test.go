package trust_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// The first leader puts the keys into the state, makes its machine a member, and then removes the file with the CA's
// key. It can go on from a crash at each point, and the keys in the state are those of the files.
func TestFoundGoesOnAfterACrash(t *testing.T) {
	crash := errors.New("crash")
	for name, test := range map[string]struct {
		before, after func() error
		committed     bool // at the crash
	}{
		"no crash":          {nil, nil, true},
		"before the commit": {func() error { return crash }, nil, false},
		"after the commit":  {nil, func() error { return crash }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.found(time.Hour)
			ca, found, err := transport.ManagedDir(s.dir).Authority()
			if err != nil || !found {
				t.Fatalf("the CA: %v, %v", found, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			stopping := func(f func() error) func() error { // the process ends in the call of Submit
				if f == nil {
					return nil
				}
				return func() error { cancel(); return f() }
			}
			r.before, r.after = stopping(test.before), stopping(test.after)
			done := make(chan struct{})
			go func() { defer close(done); s.engine.Lead(ctx) }()
			if r.before == nil && r.after == nil {
				eventually(t, "the state has a CA", func() bool { return s.machine.Current().Managed() })
				cancel()
			}
			<-done
			if got := s.machine.Current().Managed(); got != test.committed {
				t.Fatalf("the state has a CA: %v, want %v", got, test.committed)
			}
			if _, err := os.Stat(transport.ManagedDir(s.dir).CAKeyFile()); err != nil {
				t.Fatalf("the file with the key has gone too early: %v", err)
			}
			r.before, r.after = nil, nil
			s = r.start("s1", s.dir, time.Hour)
			s.run()
			s.lead()
			eventually(t, "the file is removed", func() bool {
				_, err := os.Stat(transport.ManagedDir(s.dir).CAKeyFile())
				return errors.Is(err, os.ErrNotExist)
			})
			if n := r.founding(); n != 1 {
				t.Errorf("the CA is put %d times", n)
			}
			state := s.machine.Current()
			for _, one := range []struct {
				role pki.Role
				kind model.SubjectKind
			}{{pki.RoleServer, model.SubjectServer}, {pki.RoleAgent, model.SubjectAgent}} {
				pair, _, err := transport.ManagedDir(s.dir).Pair(one.role)
				row, ok := state.TrustMemberOf(who(one.kind, "s1"))
				if err != nil || !ok || !row.Counts(pki.KeyHash(pair.Leaf)) {
					t.Errorf("%s: %v, the row is %+v", one.role, err, row)
				}
			}
			token := s.token(pki.RoleAgent)
			der, leafOf := request(t, pki.RoleAgent, "n1")
			reply := must(s.join(token, transport.JoinRequest{Agent: der}))(t)
			if err := leafOf(reply.Agent).CheckSignatureFrom(ca.Root()); err != nil {
				t.Errorf("the state has another CA than the file: %v", err)
			}
			gossip := must(transport.ManagedDir(s.dir).GossipKeys())(t)[0]
			if len(reply.GossipKeys) != 1 || string(reply.GossipKeys[0]) != string(gossip) {
				t.Error("the state has another gossip key than the file")
			}
		})
	}
}

// The file with the key of another CA than that of the state stays.
func TestForeignCAKeyStays(t *testing.T) {
	r := newRig(t)
	s := r.found(time.Hour)
	s.lead()
	other := must(transport.NewAuthority("c1", 0))(t)
	dir := transport.ManagedDir(s.dir)
	if err := dir.Write(transport.ManagedFiles{CA: other}); err != nil {
		t.Fatal(err)
	}
	stop := s.run()
	s.token(pki.RoleAgent)
	stop()
	if _, err := os.Stat(dir.CAKeyFile()); err != nil {
		t.Error(err)
	}
}

// founding counts the commands of the log that put a CA.
func (r *rig) founding() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.log {
		for _, c := range slices.Concat(e.Groups...) {
			if put, ok := c.(*fsm.KeyPut); ok && put.Name.Kind() == model.KeyCA {
				n++
			}
		}
	}
	return n
}

// If the file with the CA's key can't be removed, the engine tries again until it can.
func TestCAKeyIsRemovedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRig(t).found(30 * 24 * time.Hour)
		file := transport.ManagedDir(s.dir).CAKeyFile()
		kept := must(os.ReadFile(file))(t)
		s.lead()
		if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		defer s.run()()
		time.Sleep(24 * time.Hour)
		if err := os.WriteFile(file, kept, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is still there: %v", err)
		}
	})
}
