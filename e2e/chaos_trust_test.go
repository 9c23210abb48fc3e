package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// chaosTrust is what the test remembers of machines that must stay out.
type chaosTrust struct {
	copies   int                   // of certificates
	visitors int                   // machines that joined, or tried to, and started nothing
	thieves  []*thief              // with copied certificates of members that were revoked
	until    map[*member]time.Time // when each member's certificate ends that was seen last
}

// endedToken is a join token that admits nobody any more, with the code of the refusal.
type endedToken struct{ text, code string }

func trustFaults() []fault {
	return []fault{
		{name: "revoked-agent", kind: ofAgents, alone: true, begin: revokeAgent},
		{name: "ended-tokens", kind: ofServers, alone: true, begin: endTokens},
		{name: "lost-keyring", kind: ofServers, alone: true, begin: loseKeyring},
	}
}

// found makes the cluster: the first server by outspan up, all others by join tokens.
func (x *chaos) found() {
	x.t.Helper()
	first := x.c.servers[0]
	if err := first.found(); err != nil {
		x.t.Fatal(err)
	}
	first.configure(x.t, x.settings(first))
	first.start(x.t)
	for _, group := range [][]*member{x.c.servers[1:], x.c.agents} {
		token := x.token(group[0].role, len(group))
		for _, m := range group {
			x.join(m, token)
		}
	}
}

// token makes a join token. A token whose answer is lost stays unused.
func (x *chaos) token(role string, uses int) (text string) {
	x.t.Helper()
	body := fmt.Sprintf(`{"role":%q,"uses":%d}`, role, uses)
	failed := errNever
	waitFor(x.t, "a token for the role "+role, chaosPatience, func() error {
		for _, s := range x.c.servers {
			a, err := s.ask(http.MethodPost, "/v1/tokens", body, 10*time.Second)
			var reply api.NewTokenReply
			switch {
			case err != nil:
				failed = err
			case a.status != http.StatusOK && a.status != http.StatusCreated:
				failed = fmt.Errorf("%s: %d %s", s.Name, a.status, a.body)
			case json.Unmarshal(a.body, &reply) == nil && reply.Text != "":
				text = reply.Text
				return nil
			}
		}
		time.Sleep(100 * time.Millisecond)
		return failed
	})
	return text
}

// join lets a member join by a token, and starts it.
func (x *chaos) join(m *member, token string) {
	x.t.Helper()
	waitFor(x.t, m.Name+" joins", chaosPatience, func() error { return m.join(token) })
	m.configure(x.t, x.settings(m))
	m.start(x.t)
}

// joinAnew lets a member that was killed join again as a machine with an empty disk.
func (x *chaos) joinAnew(m *member) {
	x.t.Helper()
	x.emptyMachine(m)
	m.wipe(x.t)
	x.revoke(m.role, m.Name)
	x.join(m, x.token(m.role, 1))
}

// revoke ends the certificates of a member, and returns when it was acknowledged. Servers refuse to revoke a server as
// long as it votes and they take it for alive.
func (x *chaos) revoke(role, name string) time.Time {
	x.t.Helper()
	path := "/v1/nodes/" + name + "/revoke"
	if role == "server" {
		path = "/v1/members/" + name + "/revoke"
	}
	waitFor(x.t, "the revocation of "+name, chaosPatience, func() error {
		f := x.person(http.MethodPost, path, `{"reason":"chaos"}`)
		if f.done {
			return nil
		}
		time.Sleep(500 * time.Millisecond)
		return errors.New(f.body)
	})
	return time.Now()
}

// visit lets a machine that is not part of the cluster join as an agent at one server, without starting it. It returns
// the directory with the certificate. flags are for outspan join.
func (x *chaos) visit(name, token string, at *member, flags ...string) (dir string, err error) {
	data := x.c.path("visitors", name)
	command := append([]string{"nsenter", "--net=" + x.guest, "--", x.c.bin, "join", "--token-file", "-", "--name", name,
		"--advertise", "10.83.7.200", "--config", data + ".d", "--data", data, "--no-start", "--json"}, flags...)
	return transport.ManagedDir(data).Path(), setUp(token, append(command, at.api())...)
}

func (x *chaos) newVisitor() string {
	x.trust.visitors++
	return fmt.Sprintf("visitor%d", x.trust.visitors)
}

// judgeToken tries a token that has ended at each server. Each must refuse it with the token's code.
func (x *chaos) judgeToken(token endedToken) {
	for _, s := range x.c.servers {
		name := x.newVisitor()
		err := within(45*time.Second, func() error {
			_, err := x.visit(name, token.text, s)
			switch {
			case err == nil:
				x.book.violate("S19: %s admitted %s by a token that should be refused as %s", s.Name, name, token.code)
				return nil
			case !refusedWith(err, token.code):
				time.Sleep(time.Second)
				return err
			}
			x.book.count("attempts with ended tokens", 1)
			return nil
		})
		if err != nil {
			x.book.violate("S19: %s does not refuse a token as %s: %v", s.Name, token.code, err)
		}
	}
}

// revokeAgent revokes an agent whose certificate was copied, and lets its machine return with a new token and the files
// that it has. The token admits it only with another key.
func revokeAgent(s *strike) {
	x, m := s.x, s.agent()
	th := x.steal(m.Name, m.tls())
	x.wait("S19: a copied certificate that works before the revocation", revokedWithin, func() error {
		can := x.triesAll(th)
		if len(can) == 4*chaosServers {
			return nil
		}
		th = x.steal(m.Name, m.tls()) // the agent may have renewed its certificate meanwhile
		return fmt.Errorf("the thief gets only %v", can)
	})
	s.ends(m)
	x.lockOut(th, x.revoke(m.role, m.Name))
	x.book.count("agents revoked", 1)
	s.later(func() {
		if code := m.terminate(x.t); code != 0 {
			x.book.violate("L1: %s was revoked and ended with code %d:\n%s", m.Name, code, m.LastLines(15))
		}
		files := transport.ManagedDir(m.data())
		revoked, _, err := files.Pair(pki.RoleAgent)
		if err != nil {
			x.t.Fatal(err)
		}
		x.join(m, x.token("agent", 1)) // it asks for the key of the files first
		now, _, err := files.Pair(pki.RoleAgent)
		if err != nil {
			x.t.Fatal(err)
		}
		if bytes.Equal(pki.KeyHash(revoked.Leaf), pki.KeyHash(now.Leaf)) {
			x.book.violate("S19: %s returned with the key that was revoked", m.Name)
		}
	})
}

// rejoin lets an agent return with new keys and its old node.
func (x *chaos) rejoin(m *member, token string) {
	x.t.Helper()
	if err := os.RemoveAll(m.tls()); err != nil {
		x.t.Fatal(err)
	}
	x.join(m, token)
}

// endTokens spends one token and revokes another. Then it tries both.
func endTokens(s *strike) {
	x := s.x
	spent, revoked, name := x.token("agent", 1), x.token("agent", 1), x.newVisitor()
	if _, err := x.visit(name, spent, x.c.leader(x.t)); err != nil {
		x.t.Fatal(err)
	}
	x.revokeToken(revoked)
	x.judgeToken(endedToken{spent, "token_used"})
	x.judgeToken(endedToken{revoked, "token_revoked"})
	x.revoke("agent", name)
}

func (x *chaos) revokeToken(text string) {
	x.t.Helper()
	token, err := pki.ParseJoinToken(text)
	if err != nil {
		x.t.Fatal(err)
	}
	waitFor(x.t, "the revocation of a token", chaosPatience, func() error {
		if f := x.person(http.MethodPost, "/v1/tokens/"+token.ID()+"/revoke", "{}"); !f.done {
			return errors.New(f.body)
		}
		return nil
	})
}

// endTrustLater makes tokens before a snapshot is saved. The first returned function spends one and revokes the other
// afterwards, and revokes the member that the spent one admitted. The second one checks after the restore that all of
// that is still so, by attempts at each server.
func (x *chaos) endTrustLater() func() (comeBack func()) {
	x.t.Helper()
	spent, revoked, before := x.token("agent", 1), x.token("agent", 1), x.newVisitor()
	dir, err := x.visit(before, x.token("agent", 1), x.c.leader(x.t))
	if err != nil {
		x.t.Fatal(err)
	}
	member := x.steal(before, dir)
	return func() func() {
		after := x.newVisitor()
		dir, err := x.visit(after, spent, x.c.leader(x.t))
		if err != nil {
			x.t.Fatal(err)
		}
		newcomer := x.steal(after, dir)
		x.revokeToken(revoked)
		for _, th := range []*thief{member, newcomer} {
			x.lockOut(th, x.revoke("agent", th.name))
		}
		return func() {
			x.judgeThieves("after a restore")
			x.judgeToken(endedToken{spent, "token_used"})
			x.judgeToken(endedToken{revoked, "token_revoked"})
		}
	}
}

// loseKeyring removes the keyring of a stopped server and starts the server. The server must get the keys from others.
func loseKeyring(s *strike) {
	x, m := s.x, s.anyServer()
	path := filepath.Join(m.data(), keyring.FileName)
	had, err := keyring.Open(path)
	if err != nil {
		x.t.Fatal(err)
	}
	s.ends(m)
	m.Kill()
	if err := os.Remove(path); err != nil {
		x.t.Fatal(err)
	}
	m.start(x.t)
	s.later(func() {
		x.wait("L2: the keyring of "+m.Name, chaosPatience, func() error {
			has, err := keyring.Open(path)
			if err == nil && !slices.Equal(has.IDs(), had.IDs()) {
				err = fmt.Errorf("it has the keys %v, not %v", has.IDs(), had.IDs())
			}
			return err
		})
		x.book.count("keyrings lost", 1)
	})
}

// readmitExpired lets agents join again whose certificates have expired, because the faults of a window kept them from
// the servers for more than half of their certificate's life.
func (x *chaos) readmitExpired(w *window) {
	for _, m := range x.c.agents {
		life, err := m.certificate()
		if err != nil || time.Now().Before(life.Until) {
			continue // renewed reports an error
		}
		if time.Since(w.began) < life.Until.Sub(life.From)/4 {
			x.book.violate("L2: the certificate of %s expired at %s, in window %d (%s)", m.Name, life.Until, w.number, w.name)
		}
		m.terminate(x.t)
		x.revoke(m.role, m.Name)
		x.rejoin(m, x.token("agent", 1))
		x.book.count("agents that joined again because their certificates had expired", 1)
	}
}

// renewed returns an error if a certificate should have been renewed a while ago. It counts renewals.
func (x *chaos) renewed() error {
	for _, m := range x.c.members() {
		life, err := m.certificate()
		if err != nil {
			return err
		}
		if !life.Until.Equal(x.trust.until[m]) {
			if x.trust.until == nil {
				x.trust.until = map[*member]time.Time{}
			}
			x.book.count("certificates renewed", one(!x.trust.until[m].IsZero()))
			x.trust.until[m] = life.Until
		}
		if left := time.Until(life.Until); left < life.Until.Sub(life.From)/4 {
			return fmt.Errorf("the certificate of %s expires in %s, and was made at %s", m.Name, left, life.From)
		}
	}
	return nil
}

// awaitRenewal waits until an agent need not renew its certificate in the next half minute. Of two agents with the same
// key, the one that renews later would be shut out.
func (x *chaos) awaitRenewal(m *member) {
	x.t.Helper()
	waitFor(x.t, "a new certificate of "+m.Name, chaosPatience, func() error {
		life, err := m.certificate()
		whole, age := life.Until.Sub(life.From), time.Since(life.From)
		if err == nil && age > whole*9/20-30*time.Second && age < whole*12/20 {
			err = fmt.Errorf("it is %s old", age)
		}
		return err
	})
}
