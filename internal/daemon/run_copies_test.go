package daemon

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A copy of a machine renews first, so the key of the real agent no longer counts. The agent gets an error that says
// why and what to do, and the servers notice that two machines have one identity.
func TestCopyThatRenewsFirst(t *testing.T) {
	m := &managed{t: t}
	first := m.found("s1")
	eventually(t, "the cluster is managed", func() bool { return first.machine.Current().Managed() })
	m.join(first, pki.RoleAgent, "n1")
	dir := transport.ManagedDir(m.dir("n1"))
	old := must(dir.Credentials("c1", pki.RoleAgent, "n1"))(t)
	agent := must((&process{cfg: first.p.cfg}).client(old, []string{first.p.own}))(t)
	defer agent.Close()
	shows := &registrar{Client: agent, name: "n1", managed: true}
	if _, err := shows.Renew(t.Context(), transport.RenewRequest{}); err != nil {
		t.Fatal(err)
	}
	der, key, err := pki.NewRequest(pki.RoleAgent, "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := agent.Renew(t.Context(), transport.RenewRequest{Request: der})
	if err != nil {
		t.Fatal(err)
	}
	m.write("copy", transport.ManagedFiles{Roots: reply.Roots, GossipKeys: reply.GossipKeys,
		Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: {Certificate: reply.Chain, PrivateKey: key}}})
	creds := must(transport.ManagedDir(m.dir("copy")).Credentials("c1", pki.RoleAgent, "n1"))(t)
	second := must((&process{cfg: first.p.cfg}).client(creds, []string{first.p.own}))(t)
	defer second.Close()
	if _, err := second.Renew(t.Context(), transport.RenewRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the servers notice", func() bool {
		_, registering := shows.Register(t.Context(), transport.RegisterRequest{Name: "n1"})
		_, renewing := shows.Renew(t.Context(), transport.RenewRequest{})
		found := first.copies.Found()
		if len(found) == 0 {
			return false
		}
		for _, err := range []error{registering, renewing} {
			refusal, ok := errors.AsType[*model.Error](err)
			if !ok || !strings.Contains(refusal.Message, "perhaps on a copy of this machine") ||
				!strings.Contains(refusal.Hint, "outspan node revoke n1 --yes") {
				t.Errorf("the agent gets %v", err)
			}
		}
		if want := (transport.Copy{Node: "n1", First: "127.0.0.1", Second: "127.0.0.1"}); found[0] != want {
			t.Errorf("found %+v", found)
		}
		return true
	})
	if told := first.cluster.Condition().Copies; len(told) != 1 || told[0].Node != "n1" {
		t.Errorf("it tells the leader of %+v", told)
	}
}
