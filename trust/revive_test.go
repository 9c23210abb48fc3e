package trust_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
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
