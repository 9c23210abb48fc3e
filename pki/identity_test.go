package pki_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

func TestParseIdentity(t *testing.T) {
	good := map[string]pki.Identity{
		"outspan://outspan/server/s1":          {Cluster: "outspan", Role: pki.RoleServer, Name: "s1"},
		"outspan://Prod_2/agent/n1.rack-3":     {Cluster: "Prod_2", Role: pki.RoleAgent, Name: "n1.rack-3"},
		"outspan://c/cli/alice@example.com":    {Cluster: "c", Role: pki.RoleCLI, Name: "alice@example.com"},
		"outspan://9/cli/" + rep("x", 128):     {Cluster: "9", Role: pki.RoleCLI, Name: rep("x", 128)},
		"outspan://" + rep("c", 63) + "/cli/a": {Cluster: rep("c", 63), Role: pki.RoleCLI, Name: "a"},
	}
	for uri, want := range good {
		got, err := pki.ParseIdentity(uri)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", uri, got, err, want)
		}
		if got.URI() != uri {
			t.Errorf("%s: came back as %s", uri, got.URI())
		}
	}
	bad := []string{
		"", "outspan://", "outspan://c", "outspan://c/server", "outspan://c/server/", "outspan:///server/s1",
		"outspan://c//s1", "outspan://c/server/s1/", "outspan://c/server/s1/x", "http://c/server/s1",
		"OUTSPAN://c/server/s1", "outspan://c/Server/s1", "outspan://c/root/s1", "outspan://c:1/server/s1",
		"outspan://u@c/server/s1", "outspan://c/server/s%31", "outspan://c/server/s1?x", "outspan://c/server/s1#x",
		"outspan://c/server/..", "outspan://c/server/-s1", "outspan://c/cli/uid:0(root)", "outspan://c/server/s 1",
		"outspan://c/server/s1\n", "outspan://c/server/é", "outspan://-c/server/s1",
		"outspan://c/cli/" + rep("x", 129), "outspan://" + rep("c", 64) + "/cli/a",
	}
	for _, uri := range bad {
		got, err := pki.ParseIdentity(uri)
		if err == nil {
			t.Errorf("%q was taken as %+v", uri, got)
			continue
		}
		if !errors.Is(err, &model.Error{Code: model.CodeCertificateRefused}) {
			t.Errorf("%q: %v", uri, err)
		}
		if len(err.Error()) > 400 {
			t.Errorf("%d bytes of error for a hostile name", len(err.Error()))
		}
	}
}

func rep(s string, n int) string { return strings.Repeat(s, n) }

// If ParseIdentity accepts a text, the identity's URI is this text, and net/url reads the text as the same URI. A
// certificate that is made for the identity contains the identity unchanged.
func FuzzParseIdentity(f *testing.F) {
	f.Add("outspan://outspan/server/s1")
	f.Add("outspan://c/cli/alice@example.com")
	f.Add("outspan://c/agent/a/b")
	f.Add("outspan://c%2f/agent/a")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := pki.ParseIdentity(s)
		if err != nil {
			return
		}
		if id.URI() != s {
			t.Fatalf("%q came back as %q", s, id.URI())
		}
		u, err := url.Parse(s)
		if err != nil || u.String() != s || u.Host != id.Cluster || u.User != nil || u.Port() != "" {
			t.Fatalf("%q is not a plain URI: %v %v", s, u, err)
		}
		ca, err := transport.NewAuthority(id.Cluster, 0)
		if err != nil {
			t.Fatal(err)
		}
		c, err := ca.Credentials(id.Role, id.Name)
		if err != nil || c.Identity() != id {
			t.Fatalf("%q: through a certificate: %v %v", s, c, err)
		}
	})
}
