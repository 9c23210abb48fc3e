package trust_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// Revive says why it can't read the state, because the next error would send the operator to join again. A directory
// without a log has no state.
func TestReviveSaysWhy(t *testing.T) {
	for name, test := range map[string]struct{ state, want error }{
		"locked":   {model.Refuse(model.CodeConflict, "the server is running"), &model.Error{Code: model.CodeConflict}},
		"damaged":  {errors.New("damaged"), nil},
		"no log":   {model.Refuse(model.CodeInvalid, "no log"), nil},
		"no files": {model.Refuse(model.CodeNotFound, "no directory"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := revive(t.Context(), trust.Revival{Name: "s9", DataDir: t.TempDir(), Logger: hclog.NewNullLogger(),
				State: func(context.Context) (fsm.State, error) { return fsm.State{}, test.state }})
			fresh := name == "no log" || name == "no files"
			if fresh != (err == nil) || !fresh && !errors.Is(err, test.state) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A server whose certificate has lost its key, or whose directory has no roots, makes these files again.
func TestReviveReplacesUselessFiles(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"empty key":  func(dir string) error { return os.WriteFile(filepath.Join(dir, "server-key.pem"), nil, 0o600) },
		"no key":     func(dir string) error { return os.Remove(filepath.Join(dir, "server-key.pem")) },
		"empty cert": func(dir string) error { return os.WriteFile(filepath.Join(dir, "server.pem"), nil, 0o600) },
		"no roots":   func(dir string) error { return os.Remove(filepath.Join(dir, "ca.pem")) },
		"no gossip":  func(dir string) error { return os.Remove(filepath.Join(dir, "gossip.key")) },
		"nothing":    func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newRig(t).found(time.Hour)
			s.lead()
			files := transport.ManagedDir(s.dir)
			before := must(os.ReadFile(files.CertFile(pki.RoleServer)))(t)
			if err := damage(files.Path()); err != nil {
				t.Fatal(err)
			}
			err := revive(t.Context(), trust.Revival{Name: "s1", DataDir: s.dir, Logger: hclog.NewNullLogger(),
				State: func(context.Context) (fsm.State, error) { return s.machine.State(), nil }})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := files.Credentials("c1", pki.RoleServer, "s1"); err != nil {
				t.Error(err)
			}
			if _, err := files.GossipKeys(); err != nil {
				t.Error(err)
			}
			after := must(os.ReadFile(files.CertFile(pki.RoleServer)))(t)
			if (name == "nothing") != bytes.Equal(before, after) {
				t.Errorf("the certificate was replaced: %v", !bytes.Equal(before, after))
			}
		})
	}
}

// A server that was off for a year starts with its state alone: Revive renews its certificate and that of its agent,
// with the keys that they had. A server that was revoked before stays out.
func TestRevive(t *testing.T) {
	const life = 30 * 24 * time.Hour
	for name, test := range map[string]struct {
		lead, revoke bool
		noState      error
		off          time.Duration
		want         model.Code
		renewed      bool
	}{
		"after a year":             {lead: true, off: 365 * 24 * time.Hour, renewed: true},
		"soon":                     {lead: true, off: time.Hour},
		"set up and never started": {off: 365 * 24 * time.Hour, renewed: true},
		"no log yet": {noState: model.Refuse(model.CodeInvalid, "no log"),
			off: 365 * 24 * time.Hour, renewed: true},
		"revoked":                 {lead: true, revoke: true, off: 365 * 24 * time.Hour, want: model.CodeMemberRevoked},
		"after the end of the CA": {lead: true, off: 11 * 365 * 24 * time.Hour, want: model.CodeCertificateInvalid},
		"with a log that is broken": {lead: true, noState: errors.New("broken"), off: 365 * 24 * time.Hour,
			want: model.CodeCertificateInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := r.found(life)
				if test.lead {
					s.lead()
					stop := s.run() // removes the file with the CA's key
					synctest.Wait()
					stop()
				}
				if test.revoke {
					s.do(&fsm.MemberRevoke{Subject: who(model.SubjectServer, "s1")})
				}
				time.Sleep(test.off)
				key := pki.KeyHash(must(tlsLeaf(s))(t))
				unwritten, err := trust.Revive(t.Context(), trust.Revival{Name: "s1", Agent: true, DataDir: s.dir,
					Logger: hclog.NewNullLogger(), State: func(context.Context) (fsm.State, error) {
						if test.noState != nil {
							return fsm.State{}, test.noState
						}
						return s.machine.State(), nil
					}})
				if codeOf(err) != test.want || unwritten != nil {
					t.Fatalf("got %v, want code %q", err, test.want)
				}
				for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent} {
					creds, err := transport.ManagedDir(s.dir).Credentials("c1", role, "s1")
					if (err == nil) != (test.want == "") {
						t.Fatalf("the certificate of the %s: %v", role, err)
					}
					if err == nil && test.renewed && !creds.NotAfter().Equal(time.Now().Add(life).Truncate(time.Second)) {
						t.Errorf("the certificate of the %s expires at %s", role, creds.NotAfter())
					}
				}
				if string(pki.KeyHash(must(tlsLeaf(s))(t))) != string(key) {
					t.Error("the key is another one")
				}
			})
		})
	}
}

// A revoked agent does not keep the server of its machine from starting. A process without an agent leaves the files of
// an agent alone.
func TestReviveWithoutTheAgent(t *testing.T) {
	for name, agent := range map[string]bool{"with an agent": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRig(t).found(30 * 24 * time.Hour)
				s.lead()
				if agent {
					s.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "s1")})
				}
				time.Sleep(365 * 24 * time.Hour)
				_, err := trust.Revive(t.Context(), trust.Revival{Name: "s1", Agent: agent, DataDir: s.dir,
					Logger: hclog.NewNullLogger(),
					State:  func(context.Context) (fsm.State, error) { return s.machine.State(), nil }})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := transport.ManagedDir(s.dir).Credentials("c1", pki.RoleServer, "s1"); err != nil {
					t.Error(err)
				}
				if _, err := transport.ManagedDir(s.dir).Credentials("c1", pki.RoleAgent, "s1"); err == nil {
					t.Error("the agent has a new certificate")
				}
			})
		})
	}
}
