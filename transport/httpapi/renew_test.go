package httpapi_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// A renewal reaches the leader's Config.Renew with the name in the agent's certificate, also by way of a follower. The
// follower's own is not asked. Refusals come back with their codes.
func TestAgentsRenew(t *testing.T) {
	r := newRig(t)
	issue := func(name string) func(*httpapi.Config) {
		return func(c *httpapi.Config) {
			c.Renew = func(_ context.Context, who model.Subject, q transport.RenewRequest) (transport.RenewReply, error) {
				if string(q.Request) == "damaged" {
					return transport.RenewReply{}, model.Refuse(model.CodeInvalid, "the request is damaged")
				}
				return transport.RenewReply{Chain: [][]byte{[]byte(who.String()), q.Request}, Roots: [][]byte{{1}},
					GossipKeys: [][]byte{{2}}, Servers: []string{name}}, nil
			}
		}
	}
	r.startWith("s2", issue("s2"))
	r.startWith("s3", issue("s3"))
	r.setLeader("s2")
	for _, asked := range []string{"s1", "s2", "s3"} {
		c := r.client(pki.RoleAgent, "n1", asked)
		reply := must(c.Renew(t.Context(), transport.RenewRequest{Request: []byte("csr")}))(t)
		want := transport.RenewReply{Chain: [][]byte{[]byte("agent:n1"), []byte("csr")}, Roots: [][]byte{{1}},
			GossipKeys: [][]byte{{2}}, Servers: []string{"s2"}}
		if d := cmp.Diff(want, reply); d != "" {
			t.Errorf("by way of %s (-want +got):\n%s", asked, d)
		}
		_, err := c.Renew(t.Context(), transport.RenewRequest{Request: []byte("damaged")})
		wantCode(t, err, model.CodeInvalid)
	}
	_, err := r.cli("s2").Renew(t.Context(), transport.RenewRequest{})
	wantCode(t, err, model.CodeForbidden)

	r.setLeader("s1") // issues no certificates
	for _, asked := range []string{"s1", "s3"} {
		_, err := r.client(pki.RoleAgent, "n1", asked).Renew(t.Context(), transport.RenewRequest{})
		wantCode(t, err, model.CodeNotSupported)
	}
}

// An agent that renews again and again is refused, and other agents are not.
func TestRenewalsHaveARate(t *testing.T) {
	r := newRig(t)
	issued := 0
	r.startWith("s2", func(c *httpapi.Config) {
		c.Renew = func(context.Context, model.Subject, transport.RenewRequest) (transport.RenewReply, error) {
			issued++
			return transport.RenewReply{}, nil
		}
	})
	r.setLeader("s2")
	c := r.client(pki.RoleAgent, "n1", "s2")
	var err error
	for i := 0; i < 200 && err == nil; i++ {
		_, err = c.Renew(t.Context(), transport.RenewRequest{})
	}
	wantCode(t, err, model.CodeRateLimited)
	if issued < 20 {
		t.Errorf("%d were issued before the refusal, want 20 at least", issued)
	}
	if _, err := r.client(pki.RoleAgent, "n2", "s2").Renew(t.Context(), transport.RenewRequest{}); err != nil {
		t.Errorf("another agent: %v", err)
	}
}
