package trust_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// rotation is the replacement of the CA of a rig with the servers s1 and s2, their engines and the agent n1.
type rotation struct {
	*rig
	s1, s2 *site
	n1     *x509.Certificate
}

func newRotation(t *testing.T) *rotation {
	r := newRig(t)
	c := &rotation{rig: r, s1: r.found(24 * time.Hour)}
	c.s1.lead()
	c.s2 = c.s1.joinServer("s2", 24*time.Hour)
	c.s1.do(&fsm.MemberRevoke{Subject: who(model.SubjectAgent, "s1")}) // no process of the rig runs it
	der, leafOf := request(t, pki.RoleAgent, "n1")
	c.n1 = leafOf(must(c.s1.join(c.s1.token(pki.RoleAgent), transport.JoinRequest{Agent: der}))(t).Agent)
	return c
}

func (c *rotation) rotate(q api.RotateCABody) {
	c.t.Helper()
	c.s1.do(must(c.s1.engine.RotateCA(c.s1.machine.Current(), q))(c.t)...)
}

// report says for members that they use all CAs of the state.
func (c *rotation) report(members ...model.Subject) {
	c.t.Helper()
	var all [][]byte
	for _, row := range c.s1.machine.Current().KeysOf(model.KeyCA) {
		all = append(all, row.Public)
	}
	for _, m := range members {
		c.s1.do(&fsm.MemberHolds{Subject: m, Roots: pki.RootsDigest(all)})
	}
}

// renewAgent gives n1 a certificate of the active CA, which it uses.
func (c *rotation) renewAgent() {
	c.t.Helper()
	der, leafOf := request(c.t, pki.RoleAgent, "n1")
	subject := who(model.SubjectAgent, "n1")
	reply := must(c.s1.engine.Renew(shown(c.t, pki.KeyHash(c.n1), c.n1.NotAfter), subject,
		transport.RenewRequest{Request: der}))(c.t)
	c.n1 = leafOf(reply.Chain)
	must(c.s1.engine.Renew(shown(c.t, pki.KeyHash(c.n1), c.n1.NotAfter), subject, transport.RenewRequest{}))(c.t)
}

// want checks the step after the leader has had the time to take the next one, and who is waited for.
func (c *rotation) want(step api.CAStep, phases string, waiting ...string) {
	c.t.Helper()
	time.Sleep(5 * time.Second)
	state := c.s1.machine.Current()
	var got string
	for _, row := range state.KeysOf(model.KeyCA) {
		got += string(row.Name) + " " + string(row.Phase) + " "
	}
	status := must(c.s1.engine.CAStatus(state))(c.t)
	r := status.Rotation
	if r == nil {
		r = &api.CARotation{}
	}
	var names []string
	for _, m := range r.WaitingFor {
		names = append(names, m.Subject)
	}
	if got != phases+" " || r.Step != step || !slices.Equal(names, waiting) || r.Waiting != len(waiting) {
		c.t.Fatalf("the CAs are %s; step %q waits for %q; want %s, %q, %q", got, r.Step, names, phases, step, waiting)
	}
}

// keepsCAOf checks that the CAs of members' certificates are there after the leader has had the time to drop them.
func (c *rotation) keepsCAOf(members ...model.Subject) {
	c.t.Helper()
	time.Sleep(5 * time.Second)
	state := c.s1.machine.Current()
	for _, who := range members {
		if row, ok := state.TrustMemberOf(who); !ok || row.CA != "" && !state.TrustKeys.Has(row.CA) {
			c.t.Errorf("S20: the rotation waits for %s, and has dropped the CA of its certificate: %+v", who, row)
		}
	}
}

var (
	server1 = model.Subject{Kind: model.SubjectServer, Name: "s1"}
	server2 = model.Subject{Kind: model.SubjectServer, Name: "s2"}
	agent1  = model.Subject{Kind: model.SubjectAgent, Name: "n1"}
)

// A rotation goes on when each member has done its part of a step, also if another leader takes each step. Servers
// renew by themselves, and the old CA is gone in the end.
func TestRotateCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		stop := c.s1.leading()
		next := func(s *site) { stop(); c.setLeader(s.name); stop = s.leading() }
		first, _ := c.s1.machine.Current().ActiveKey(model.KeyCA)
		c.want("", "ca/1 active")
		c.rotate(api.RotateCABody{})
		c.want(api.CADistribute, "ca/1 active ca/2 incoming", "server:s1", "server:s2", "agent:n1")
		if again := must(c.s1.engine.RotateCA(c.s1.machine.Current(), api.RotateCABody{}))(t); len(again) != 0 {
			t.Errorf("a second rotation begins: %+v", again[0])
		}
		c.report(server1, agent1)
		next(c.s2)
		c.want(api.CADistribute, "ca/1 active ca/2 incoming", "server:s2")
		c.report(server2)
		c.keepsCAOf(server1, server2, agent1)
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2", "agent:n1")
		c.s1.run()
		c.s2.run()
		next(c.s1)
		c.want(api.CARenew, "ca/1 retired ca/2 active", "agent:n1")
		token := c.s1.token(pki.RoleAgent)
		c.renewAgent()
		next(c.s2)
		c.want(api.CAForget, "ca/2 active", "agent:n1")
		c.report(agent1)
		c.want("", "ca/2 active")

		root, _ := c.s1.machine.Current().ActiveKey(model.KeyCA)
		if bytes.Equal(root.Public, first.Public) {
			t.Error("the new CA is the old one")
		}
		der, leafOf := request(t, pki.RoleAgent, "n2")
		leaves := []*x509.Certificate{c.n1, must(tlsLeaf(c.s1))(t), must(tlsLeaf(c.s2))(t),
			leafOf(must(c.s1.join(token, transport.JoinRequest{Agent: der}))(t).Agent)}
		for _, leaf := range leaves {
			if err := leaf.CheckSignatureFrom(must(x509.ParseCertificate(root.Public))(t)); err != nil {
				t.Errorf("%s: %v", leaf.Subject.CommonName, err)
			}
		}
		stop()
	})
}

// A rotation waits for a member that is off, and not for one that an operator leaves behind, also in later steps.
func TestRotateCALeavesBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		s3 := c.s1.joinServer("s3", 24*time.Hour)
		c.stop(s3)
		c.off = map[string]time.Time{"s3": time.Now()}
		defer c.s1.leading()()
		c.rotate(api.RotateCABody{})
		c.report(server1, server2)
		c.want(api.CADistribute, "ca/1 active ca/2 incoming", "server:s3", "agent:n1") // no node says that n1 is there
		for name, test := range map[string]struct {
			q    api.RotateCABody
			want model.Code
		}{
			"names without force":     {api.RotateCABody{Names: []string{"n1"}}, model.CodeInvalid},
			"an unknown name":         {api.RotateCABody{Force: true, Names: []string{"n7"}}, model.CodeNotFound},
			"a majority of servers":   {api.RotateCABody{Force: true, Names: []string{"s1", "s3"}}, model.CodeConflict},
			"a grace that comes late": {api.RotateCABody{Grace: new(model.Duration)}, model.CodeConflict},
		} {
			_, err := c.s1.engine.RotateCA(c.s1.machine.Current(), test.q)
			if codeOf(err) != test.want {
				t.Errorf("%s: got %v, want %s", name, err, test.want)
			}
		}
		c.rotate(api.RotateCABody{Force: true, Names: []string{"n1"}})
		c.want(api.CADistribute, "ca/1 active ca/2 incoming", "server:s3")
		c.rotate(api.RotateCABody{Force: true})
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2")
		c.s1.run()
		c.s2.run()
		c.want("", "ca/2 active") // the servers report what they trust by themselves
		row, _ := c.s1.machine.Current().ActiveKey(model.KeyCA)
		if !slices.Equal(row.Passed, []string{"agent:n1", "server:s3"}) {
			t.Errorf("left behind: %q", row.Passed)
		}
	})
}

// The old CA stays for the grace, and tokens that were made before the new CA was used are counted.
func TestRotateCAGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		c.s1.token(pki.RoleAgent, func(k *fsm.TokenCreate) { k.TTL = 24 * model.Hour })
		grace := model.Hour
		defer c.s1.leading()()
		c.rotate(api.RotateCABody{Force: true, Names: []string{"n1"}, Grace: &grace})
		c.report(server1, server2)
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2")
		c.s1.token(pki.RoleAgent)
		if status := must(c.s1.engine.CAStatus(c.s1.machine.Current()))(t); status.Tokens != 1 {
			t.Errorf("the rotation ends %d tokens", status.Tokens)
		}
		c.s1.run()
		c.s2.run()
		c.want(api.CAGrace, "ca/1 retired ca/2 active")
		time.Sleep(58 * time.Minute)
		c.want(api.CAGrace, "ca/1 retired ca/2 active")
		c.s1.token(pki.RoleAgent)
		time.Sleep(3 * time.Minute)
		c.want("", "ca/2 active")
		if status := must(c.s1.engine.CAStatus(c.s1.machine.Current()))(t); status.Tokens != 1 {
			t.Errorf("%d tokens are good, which does not include that of the dropped CA", status.Tokens)
		}
	})
}

// Newcomers that wait by tokens which the rotation ends are counted.
func TestRotateCACountsNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		settings := model.DefaultSettings()
		settings.JoinApproval = true
		c.s1.do(&fsm.SettingsSet{Settings: settings})
		wait := func(name string) {
			t.Helper()
			der, _ := request(t, pki.RoleAgent, name)
			_, err := c.s1.join(c.s1.token(pki.RoleAgent), transport.JoinRequest{Agent: der})
			wantCode(t, err, model.CodeApprovalPending)
		}
		counts := func(tokens, newcomers int) {
			t.Helper()
			status := must(c.s1.engine.CAStatus(c.s1.machine.Current()))(t)
			if status.Tokens != tokens || status.Newcomers != newcomers {
				t.Errorf("the rotation ends %d tokens and %d newcomers; want %d and %d", status.Tokens, status.Newcomers,
					tokens, newcomers)
			}
		}
		wait("n2")
		wait("n3")
		n3 := c.s1.machine.Current().NewcomersNamed("n3")[0]
		c.s1.do(&fsm.NewcomerReject{Newcomer: n3.Subject(), Key: n3.Key(), Index: n3.Index})
		counts(2, 1)
		defer c.s1.leading()()
		c.rotate(api.RotateCABody{})
		c.report(server1, server2, agent1)
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2", "agent:n1")
		counts(2, 1)
		wait("n4")
		counts(2, 1)
		defer c.s1.run()()
		defer c.s2.run()()
		c.renewAgent()
		c.report(agent1)
		time.Sleep(5 * time.Second)
		c.report(agent1)
		c.want("", "ca/2 active")
		counts(1, 1)
	})
}

// A leader with an older state can't take a step again.
func TestRotateCARefusesAnOldLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		before := c.s1.machine.Current()
		first := must(c.s1.engine.RotateCA(before, api.RotateCABody{}))(t)
		second := must(c.s2.engine.RotateCA(before, api.RotateCABody{}))(t)
		c.s1.do(first...)
		wantCode(t, c.s1.Submit(t.Context(), second), model.CodeStale)
		old := c.s1.machine.Current()
		passed := must(c.s1.engine.RotateCA(old, api.RotateCABody{Force: true, Names: []string{"n1"}}))(t)
		c.report(server1, server2, agent1)
		stop := c.s1.leading()
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2", "agent:n1")
		stop()
		wantCode(t, c.s1.Submit(t.Context(), passed), model.CodeStale)
	})
}

// An agent whose certificate is of another CA than the last root in its file renews within a minute.
func TestAgentFollowsTheCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRotation(t)
		p := c.s1.agentFiles("n5")
		defer p.renews(t, c.s1, "n5")()
		old, _, _ := p.dir.Pair(pki.RoleAgent)
		defer c.s1.leading()()
		c.rotate(api.RotateCABody{})
		cas := c.s1.machine.Current().KeysOf(model.KeyCA)
		if err := p.dir.Write(transport.ManagedFiles{Roots: [][]byte{cas[1].Public, cas[0].Public}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if now, _, _ := p.dir.Pair(pki.RoleAgent); !now.Leaf.Equal(old.Leaf) {
			t.Error("the agent renewed before the new CA signs")
		}
		c.report(server1, server2, agent1, who(model.SubjectAgent, "n5"))
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2", "agent:n1", "agent:n5")
		if err := p.dir.Write(transport.ManagedFiles{Roots: [][]byte{cas[0].Public, cas[1].Public}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second)
		c.want(api.CARenew, "ca/1 retired ca/2 active", "server:s1", "server:s2", "agent:n1")
		pair, _, _ := p.dir.Pair(pki.RoleAgent)
		if err := pair.Leaf.CheckSignatureFrom(must(x509.ParseCertificate(cas[1].Public))(t)); err != nil {
			t.Errorf("the certificate of the agent: %v", err)
		}
	})
}

// renews runs what renews an agent's certificate at a server, until the returned function is called.
func (f files) renews(t *testing.T, s *site, name string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	renew := func(_ context.Context, q transport.RenewRequest) (transport.RenewReply, error) {
		return s.engine.Renew(f.shown(t), who(model.SubjectAgent, name), q)
	}
	go func() {
		defer close(done)
		_ = trust.Agent{Name: name, Dir: f.dir, Credentials: f.creds, Reload: f.creds.Reload, Renew: renew,
			Logger: hclog.NewNullLogger()}.Run(ctx)
	}()
	return func() { cancel(); <-done }
}
