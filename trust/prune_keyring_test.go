package trust_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
)

// write commits a write of a person with a request id, at a cluster time. body is the hash of its body.
func (s *site) write(id model.RequestID, at model.Time, body string) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	e := fsm.Entry{Format: model.CurrentFormat, At: at, Actor: "cert:alice", Request: id, Body: body,
		Groups: [][]fsm.Command{{&fsm.KeyDrop{Name: "data/99"}}}}
	s.r.log = append(s.r.log, e)
	for _, one := range s.r.sites {
		one.apply(len(s.r.log)-1, e)
	}
}

// reasons returns why servers keep a key, by server.
func reasons(p api.KeyringPruning, id keyring.ID) map[string]string {
	all := map[string]string{}
	for _, k := range p.Kept {
		if k.Key == string(id) {
			all[k.Server] = k.Reason
		}
	}
	return all
}

// An old key goes once the disk of every server begins after the rotation and no request that it hashed may be
// repeated, and then from all files. Until then no server loses a key.
func TestPruneKeyring(t *testing.T) {
	r, s1, s2, s3 := three(t)
	first := s1.under()
	for _, s := range []*site{s1, s2, s3} {
		s.run()
	}
	next := keyring.ID(must(s1.engine.RotateKeyring(t.Context(), "cert:alice", false))(t).Key)
	eventually(t, "all servers use the new key", func() bool {
		kept := reasons(must(s1.engine.PruneKeyring(t.Context(), true))(t), first)
		return !slices.Contains(slices.Collect(maps.Values(kept)), "it is the active key")
	})
	row, _ := s1.machine.Current().ActiveKey(model.KeyData)
	set := func(s1, s2, s3 uint64) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.oldest = map[string]uint64{"s1": s1, "s2": s2, "s3": s3}
		for name, index := range r.oldest {
			if index == 0 {
				delete(r.oldest, name)
			}
		}
	}
	stays := func(server, why string) {
		t.Helper()
		got := must(s1.engine.PruneKeyring(t.Context(), false))(t)
		if said := reasons(got, first); len(got.Removed) != 0 || !strings.Contains(said[server], why) {
			t.Errorf("%+v; %s gives the reason %q, want %q", got, server, said[server], why)
		}
		for _, s := range []*site{s1, s2, s3} {
			if !slices.Contains(s.ring().IDs(), first) {
				t.Fatalf("%s has lost the key because of %q", s.name, why)
			}
		}
	}
	now := row.CreatedIndex
	set(now, now, 0)
	stays("s3", "has no snapshot yet")
	set(now, now-1, now)
	stays("s2", "before the last rotation")
	set(now, now, now)
	s1.write("young", s1.Now(), string(first)+".hash")
	stays("s1", "may be repeated")
	s1.write("later", s1.Now().Add(11*model.Minute), string(next)+".hash")

	r.dead = []string{"s9"}
	_, err := s1.engine.PruneKeyring(t.Context(), false)
	wantCode(t, err, model.CodeConflict)
	r.dead = nil
	dry := must(s1.engine.PruneKeyring(t.Context(), true))(t)
	if !slices.Equal(dry.Removed, []string{string(first)}) || !dry.DryRun || len(s2.ring().IDs()) != 2 {
		t.Errorf("a dry run: %+v, and s2 has %v", dry, s2.ring().IDs())
	}
	r.lost = func(to, question string) error {
		if to == "s3" && question == "trust-drop-keys" {
			return errors.New("cut off")
		}
		return nil
	}
	_, err = s1.engine.PruneKeyring(t.Context(), false)
	wantCode(t, err, model.CodeConflict)
	if !slices.Contains(s1.ring().IDs(), first) || !slices.Contains(s3.ring().IDs(), first) {
		t.Errorf("after a failure s1 has %v, and s3 has %v", s1.ring().IDs(), s3.ring().IDs())
	}
	r.lost = nil
	got := must(s1.engine.PruneKeyring(t.Context(), false))(t)
	if !slices.Equal(got.Removed, []string{string(first)}) || len(reasons(got, next)) != 3 {
		t.Errorf("%+v", got)
	}
	for _, s := range []*site{s1, s2, s3} {
		if !slices.Equal(s.ring().IDs(), []keyring.ID{next}) {
			t.Errorf("%s has %v", s.name, s.ring().IDs())
		}
	}
	if got := must(s1.engine.PruneKeyring(t.Context(), false))(t); len(got.Removed) != 0 {
		t.Errorf("a second time: %+v", got)
	}
}

// A hash tells equal bodies from others, also after a rotation, and without its key nobody can make it.
func TestHashBody(t *testing.T) {
	_, s1, s2, _ := three(t)
	state := func() *fsm.State { return s1.machine.Current() }
	old := s1.engine.HashBody(state(), "", []byte("body"))
	if !strings.HasPrefix(old, string(s1.under())+".") || old != s2.engine.HashBody(state(), "", []byte("body")) {
		t.Errorf("the hash is %q, and on another server %q", old, s2.engine.HashBody(state(), "", []byte("body")))
	}
	must(s1.engine.RotateKeyring(t.Context(), "cert:alice", false))(t)
	fresh := s1.engine.HashBody(state(), "", []byte("body"))
	for _, like := range []string{old, fresh} {
		if got := s2.engine.HashBody(state(), like, []byte("body")); got != like {
			t.Errorf("the hash like %q is %q", like, got)
		}
		if got := s2.engine.HashBody(state(), like, []byte("other")); got == like {
			t.Errorf("another body has the hash %q too", like)
		}
	}
	if old == fresh {
		t.Error("the rotation has not changed the key of new hashes")
	}
	gone := "0123456789abcdef.AAAAAAAAAAAAAAAAAAAAAA"
	if got := s1.engine.HashBody(state(), gone, []byte("body")); got != "" {
		t.Errorf("by a key that is gone: %q", got)
	}
}
