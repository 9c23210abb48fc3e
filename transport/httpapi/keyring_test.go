package httpapi_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// keyringServers is what the servers of a rig answer about their keyrings.
var keyringServers = []api.KeyringServer{{Name: "s1", Answers: true, Complete: true, Lacks: []string{}},
	{Name: "s2", Lacks: []string{}, Error: "it does not answer"}}

// Keyring implements httpapi.Keyring.
func (r *rig) Keyring(context.Context) (api.Keyring, error) {
	return api.Keyring{Keys: []api.KeyringKey{{ID: "0123456789abcdef", Active: true, Needed: true,
		Created: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}}, Servers: keyringServers}, nil
}

// RotateKeyring implements httpapi.Keyring.
func (r *rig) RotateKeyring(_ context.Context, by model.Actor, dryRun bool) (api.KeyringRotation, error) {
	if !dryRun {
		return api.KeyringRotation{}, model.Refuse(model.CodeConflict, "these don't answer %s: s2", by)
	}
	return api.KeyringRotation{Before: "0123456789abcdef", DryRun: true, Servers: keyringServers}, nil
}

// PruneKeyring implements httpapi.Keyring.
func (r *rig) PruneKeyring(_ context.Context, dryRun bool) (api.KeyringPruning, error) {
	return api.KeyringPruning{DryRun: dryRun, Removed: []string{"0123456789abcdef"},
		Kept: []api.KeyringKept{{Server: "s1", Key: "fedcba9876543210", Reason: "it is the active key"}}}, nil
}

// People may look at the keyring, rotate and prune it, agents may not. A follower passes the request on.
func TestKeyring(t *testing.T) {
	r := newRig(t, "s1", "s2")
	for _, one := range []struct {
		name, method, path string
		query              url.Values
	}{
		{"keyring", http.MethodGet, "/v1/keyring", nil},
		{"keyring_rotate", http.MethodPost, "/v1/keyring/rotate", url.Values{"dry_run": {"true"}}},
		{"keyring_prune", http.MethodPost, "/v1/keyring/prune", url.Values{"dry_run": {"true"}}},
	} {
		raw, _, err := r.cli("s2").Do(t.Context(), one.method, one.path, one.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantGolden(t, one.name, raw)
		_, _, err = r.client(pki.RoleAgent, "n1", "s1").Do(t.Context(), one.method, one.path, one.query, nil)
		wantCode(t, err, model.CodeForbidden)
	}
	_, _, err := r.cli("s2").Do(t.Context(), http.MethodPost, "/v1/keyring/rotate", nil, nil)
	wantCode(t, err, model.CodeConflict)
	if !strings.Contains(err.Error(), "answer cert:alice") {
		t.Errorf("%v does not name who asked", err)
	}
	_, _, err = r.cli("s1").Do(t.Context(), http.MethodPost, "/v1/keyring/rotate", nil, map[string]int{"a": 1})
	wantCode(t, err, model.CodeInvalid)
}

// An export is recorded for the data key that one of its keys encrypts.
func TestKeyringExported(t *testing.T) {
	r := newRig(t)
	export := func(keys ...string) error {
		_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/keyring/exported", nil, api.ExportedBody{Keys: keys})
		return err
	}
	wantCode(t, export("kek"), model.CodeNotSupported)
	r.manage()
	wantCode(t, export("x"), model.CodeNotFound)
	if err := export("x", "kek"); err != nil {
		t.Fatal(err)
	}
	state, _ := r.machine.Watch()
	if k, _ := state.ActiveKey(model.KeyData); k.Exported == 0 {
		t.Errorf("the data key is %+v", k)
	}
}
