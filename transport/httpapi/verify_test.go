package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport/httpapi"
)

// Verify implements httpapi.Verifier.
func (r *rig) Verify(_ context.Context, patience time.Duration) (api.Verification, error) {
	if patience != 3*time.Second {
		return api.Verification{}, model.Refuse(model.CodeTimeout, "asked to wait %s", patience)
	}
	return api.Verification{Verdict: "differs", Index: 7, Format: 1, Digest: "aa", Items: []api.VerifiedServer{
		{Name: "s1", ID: "id-s1", Address: "127.0.0.1:7640", Voter: true, Leader: true, Version: "1.2.3",
			Verdict: "equal", Index: 7, Digest: "aa"},
		{Name: "s2", ID: "id-s2", Address: "127.0.0.1:7640", Voter: true, Version: "1.2.3", Verdict: "differs", Index: 7,
			Digest: "bb",
			Tables: []api.TableDiff{{Name: "nodes", Rows: 2, Digest: "cc", ExpectedRows: 3, ExpectedDigest: "dd"}}},
		{Name: "s3", ID: "id-s3", Verdict: "unreachable", Detail: "no answer"},
	}}, nil
}

// Differing implements httpapi.Verifier.
func (r *rig) Differing() []api.DifferentState {
	return []api.DifferentState{{Name: "s2", ID: "id-s2", Index: 7, Time: r.born.UTC()}}
}

// patientVerifier waits as long as it may, as for a server that is off.
type patientVerifier struct{ *rig }

func (patientVerifier) Verify(ctx context.Context, patience time.Duration) (api.Verification, error) {
	select {
	case <-time.After(patience):
	case <-ctx.Done():
	}
	return api.Verification{}, ctx.Err()
}

// Whoever has the servers compared for long keeps nobody else from it, and not from asking all agents.
func TestVerifyKeepsNobodyElseWaiting(t *testing.T) {
	r := newRig(t)
	r.world()
	r.startWith("s2", func(c *httpapi.Config) { c.Servers.Verifier = patientVerifier{r} })
	ctx, cancel := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	one := r.client(pki.RoleCLI, "bob", "s2")
	refused := make(chan error, 20)
	for range cap(refused) {
		asked.Go(func() {
			_, _, err := one.Do(ctx, http.MethodGet, "/v1/members/verify", values("wait=60s"), nil)
			refused <- err
		})
	}
	for range cap(refused) - 1 {
		wantCode(t, <-refused, model.CodeBusy)
	}
	other := r.client(pki.RoleCLI, "alice", "s2")
	began := time.Now()
	get(t, other, "/v1/found-volumes")
	_, _, err := other.Do(t.Context(), http.MethodGet, "/v1/members/verify", values("wait=1ms"), nil)
	if err != nil || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

// Every server can compare the servers' states, even without a leader. Agents may not ask for this comparison.
func TestVerifyMembers(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.setLeader("")
	for _, name := range []string{"s1", "s2"} {
		v := get(t, r.cli(name), "/v1/members/verify?wait=3s")
		if v["verdict"] != "differs" || len(v["items"].([]any)) != 3 {
			t.Errorf("%s: %v", name, v)
		}
	}
	for path, want := range map[string]model.Code{
		"/v1/members/verify":          model.CodeTimeout, // from Verify, because the default is not 3 s
		"/v1/members/verify?wait=2m":  model.CodeInvalid,
		"/v1/members/verify?wait=now": model.CodeInvalid,
		"/v1/members/verify?await=3s": model.CodeInvalid,
	} {
		_, _, err := r.cli("s1").Do(t.Context(), http.MethodGet, path, nil, nil)
		if !errors.Is(err, &model.Error{Code: want}) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	_, _, err := r.client(pki.RoleAgent, "n1", "s1").
		Do(t.Context(), http.MethodGet, "/v1/members/verify?wait=3s", nil, nil)
	if !errors.Is(err, &model.Error{Code: model.CodeForbidden}) {
		t.Errorf("an agent: %v", err)
	}
}
