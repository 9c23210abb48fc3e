package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport/httpapi"
)

// sender sends a write and returns the status, headers and body of its answer.
type sender func(path, body string) (status int, header http.Header, text string)

// sender returns a sender with a certificate of the given name, or with an access token if header is given. It speaks
// plain HTTP, so that a test sees the whole answer.
func (r *rig) sender(name, header string) sender {
	cfg := must(r.ca.Credentials(pki.RoleCLI, name))(r.t).ClientConfig(pki.RoleServer)
	if header != "" {
		cfg.Certificates, cfg.GetClientCertificate = nil, nil
	}
	via := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	r.t.Cleanup(via.CloseIdleConnections)
	return func(path, body string) (int, http.Header, string) {
		r.t.Helper()
		req := must(http.NewRequestWithContext(r.t.Context(), http.MethodPost, "https://"+r.servers["s1"].address+path,
			strings.NewReader(body)))(r.t)
		if kind, value, ok := strings.Cut(header, ": "); ok {
			req.Header.Set(kind, value)
		}
		resp := must(via.RoundTrip(req))(r.t)
		defer resp.Body.Close()
		return resp.StatusCode, resp.Header, string(must(io.ReadAll(resp.Body))(r.t))
	}
}

// The answer that another subject got stays its own: whoever sends the same request id, with the same body or another,
// is refused. The refusal is the same whether the first request was carried out or refused, and says neither who sent
// it nor what came of it. Both the look at the state and Apply refuse.
func TestRequestIDOfAnotherSubject(t *testing.T) {
	const done, refused = "/v1/jobs/web/scale", "/v1/instances/inst-a/evict"
	const body, other = `{"count":2}`, `{"count":1}`
	r := newRig(t)
	r.world()
	var between func() // called once between the judgement and the commit of the next write
	r.startWith("s1", func(c *httpapi.Config) {
		c.Consensus = beforeWrite{c.Consensus, func() {
			if do := between; do != nil {
				between = nil
				do()
			}
		}}
	})
	senders := map[string]sender{"cert:alice": r.sender("alice", ""), "cert:bob": r.sender("bob", "")}
	for _, name := range []string{"alice", "ci"} {
		senders["token:"+name] = r.sender("none", bearerOf(r.grantToken(name, model.Hour, rights.Admin)))
	}
	wantConflict := func(t *testing.T, who, path, id, body, first string) {
		t.Helper()
		before, state := r.entries(), fsm.Digest(r.machine.State())
		status, header, text := senders[who](path+"?request_id="+id, body)
		if status != http.StatusConflict || !strings.Contains(text, `"code":"request_id_conflict"`) ||
			!strings.Contains(text, "by another caller") {
			t.Errorf("%s with the id of %s: %d %s", who, first, status, text)
		}
		for _, secret := range []string{first, "replayed", "deployment", string(model.CodeBudgetMinReady)} {
			if strings.Contains(text, secret) {
				t.Errorf("%s learns %q of the request of %s: %s", who, secret, first, text)
			}
		}
		if got := header.Get("Outspan-Index"); got != "" {
			t.Errorf("%s gets the index %s of the request of %s", who, got, first)
		}
		if r.entries() != before || fsm.Digest(r.machine.State()) != state {
			t.Errorf("the request of %s made %d entries", who, r.entries()-before)
		}
	}
	for _, first := range []string{"cert:alice", "token:ci"} {
		id := strings.ReplaceAll(first, ":", "-")
		if status, _, text := senders[first](done+"?request_id="+id, body); status != http.StatusOK {
			t.Fatalf("%s: %d %s", first, status, text)
		}
		if status, _, text := senders[first](refused+"?request_id="+id+"-no", ""); !strings.Contains(text,
			string(model.CodeBudgetMinReady)) {
			t.Fatalf("%s: %d %s", first, status, text)
		}
		for who := range senders {
			if who == first {
				continue
			}
			for _, b := range []string{body, other} {
				wantConflict(t, who, done, id, b, first)
			}
			wantConflict(t, who, refused, id+"-no", "", first)
			wantConflict(t, who, done, id+"-no", body, first)
		}
		if _, _, text := senders[first](done+"?request_id="+id, body); !strings.Contains(text, `"replayed":true`) {
			t.Errorf("%s sends its own request again: %s", first, text)
		}
	}
	for _, who := range []string{"cert:bob", "token:ci"} {
		for name, b := range map[string]string{"same": body, "other": other} {
			id := "race-" + strings.ReplaceAll(who, ":", "-") + name
			between = func() { senders["cert:alice"](done+"?request_id="+id, body) }
			status, _, text := senders[who](done+"?request_id="+id, b)
			if status != http.StatusConflict || !strings.Contains(text, "by another caller") ||
				strings.Contains(text, "cert:alice") || strings.Contains(text, "deployment") {
				t.Errorf("%s, with the %s body while cert:alice sends it: %d %s", who, name, status, text)
			}
			if row, _ := r.machine.State().Requests.Get(model.RequestID(id)); row == nil || row.Actor != "cert:alice" {
				t.Errorf("%s: the row is %+v", id, row)
			}
		}
	}
}
