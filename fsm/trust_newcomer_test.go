package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// approvalState is trustState with join_approval on, and with a token "many00000000" that admits three servers.
func approvalState(t *testing.T) State {
	t.Helper()
	s := trustState(t)
	settings := s.Settings
	settings.JoinApproval = true
	return run(t, s, 1000, &SettingsSet{Settings: settings},
		&TokenCreate{ID: "many00000000", Role: "server", Verifier: hashOf('m'), TTL: model.Hour, Uses: 3})
}

// waits is a newcomer without a server that asks by agentToken.
func waits(name string, key byte) *NewcomerWait {
	return &NewcomerWait{Name: name, Agent: hashOf(key), Token: agentToken, Verifier: hashOf('a'), Address: "10.0.0.9"}
}

// serverWaits is a newcomer with a server and perhaps an agent that asks by the token of three uses.
func serverWaits(name string, server byte, agent []byte) *NewcomerWait {
	return &NewcomerWait{Name: name, Server: hashOf(server), Agent: agent, Token: "many00000000", Verifier: hashOf('m')}
}

// rowOf returns the row of the newcomer that has a key.
func rowOf(t *testing.T, s State, name string, key byte) *Newcomer {
	t.Helper()
	n, ok := s.Newcomers.Get(newcomerKey(name, hashOf(key)))
	if !ok {
		t.Fatalf("no newcomer %s with key %d in %v", name, key, rowsOf(s.Newcomers))
	}
	return n
}

func approve(t *testing.T, s State, name string, key byte) *NewcomerApprove {
	t.Helper()
	n := rowOf(t, s, name, key)
	return &NewcomerApprove{n.Subject(), n.Key(), n.Index}
}

func reject(t *testing.T, s State, name string, key byte) *NewcomerReject {
	t.Helper()
	n := rowOf(t, s, name, key)
	return &NewcomerReject{n.Subject(), n.Key(), n.Index}
}

const waitsEvent = "newcomer.waits member/agent:n2 waits"

// A newcomer is admitted only once it is approved, by the key with which it waited. Its use is spent then.
func TestNewcomerIsHeld(t *testing.T) {
	n2 := agentNamed("n2")
	s := approvalState(t)
	checked(t, s, 2000, model.CodeApprovalPending, "", admit(n2, 2))
	s = checked(t, s, 2000, "", waitsEvent, waits("n2", 2))
	s = checked(t, s, 2000, "", "", waits("n2", 2)) // it asks again
	checked(t, s, 2000, model.CodeApprovalPending, "", admit(n2, 2))
	s = checked(t, s, 2000, "", "newcomer.approved member/agent:n2 approved", approve(t, s, "n2", 2))
	if token, _ := s.JoinTokens.Get(agentToken); token.Used != 0 {
		t.Errorf("%d uses are spent before the admission", token.Used)
	}
	checked(t, s, 2000, model.CodeApprovalPending, "", admit(n2, 3)) // another key
	s = checked(t, s, 2000, "", "member.joined member/agent:n2 joined", admit(n2, 2))
	if token, _ := s.JoinTokens.Get(agentToken); token.Used != 1 || s.Newcomers.Len() != 0 {
		t.Errorf("%d uses are spent, and %d newcomers left", token.Used, s.Newcomers.Len())
	}
	checked(t, s, 2000, "", "", admit(n2, 2)) // a lost answer
	if _, e, _ := s.Events.Max(); e.Data["approved_by"] != "cli:alice" {
		t.Errorf("the event of the admission has %v", e.Data)
	}
}

// A decision is about one name with its keys and its token.
func TestApprovalIsForOneKey(t *testing.T) {
	pair := func(server, agent byte, name string) []Command {
		one := with(admit(serverNamed(name), server), func(c *MemberAdmit) {
			c.Token, c.Verifier = "many00000000", hashOf('m')
		})
		other := with(one, func(c *MemberAdmit) { c.Subject, c.Key = agentNamed(name), hashOf(agent) })
		return []Command{one, other}
	}
	s := run(t, approvalState(t), 2000, serverWaits("s4", 4, hashOf(5)))
	old := approve(t, s, "s4", 4)
	s = run(t, s, 2000, serverWaits("s4", 4, hashOf(6)))
	checked(t, s, 2000, model.CodeStale, "", old) // the person looked at another key of the agent
	s = run(t, s, 2000, approve(t, s, "s4", 4))
	checked(t, s, 2000, model.CodeApprovalPending, "", pair(4, 5, "s4")...)
	checked(t, s, 2000, model.CodeApprovalPending, "", pair(7, 6, "s4")...)
	byOther := with(pair(4, 6, "s4")[0].(*MemberAdmit), func(c *MemberAdmit) {
		c.Token, c.Verifier = serverToken, hashOf('s')
	})
	checked(t, s, 2000, model.CodeApprovalPending, "", byOther)
	again := checked(t, s, 2000, "", "newcomer.waits member/server:s4 waits", serverWaits("s4", 4, hashOf(5)))
	checked(t, again, 2000, model.CodeApprovalPending, "", pair(4, 5, "s4")...)
	s = checked(t, s, 2000, "", "member.joined member/server:s4 joined; member.joined member/agent:s4 joined",
		pair(4, 6, "s4")...)
	if token, _ := s.JoinTokens.Get("many00000000"); token.Used != 1 || s.Newcomers.Len() != 0 {
		t.Errorf("the pair spent %d uses and left %d newcomers", token.Used, s.Newcomers.Len())
	}
}

// A token that was revoked, spent or expired ends the wait. An approval lasts an hour, also beyond the time of the
// token.
func TestNewcomersEnd(t *testing.T) {
	n2, hour := agentNamed("n2"), model.Time(model.Hour)
	waiting := run(t, approvalState(t), 2000, waits("n2", 2))
	approved := run(t, waiting, hour, approve(t, waiting, "n2", 2))
	revoke, joined := &TokenRevoke{agentToken}, "member.joined member/agent:n2 joined"
	two := run(t, approvalState(t), 2000,
		&TokenCreate{ID: "long00000000", Role: "agent", Verifier: hashOf('l'), TTL: 48 * model.Hour, Uses: 1},
		with(waits("n2", 2), func(c *NewcomerWait) { c.Token, c.Verifier = "long00000000", hashOf('l') }))
	for name, test := range map[string]struct {
		s      State
		at     model.Time
		code   model.Code
		events string
		try    Command
	}{
		"the token expired before the approval": {waiting, hour + 1000, model.CodeNotFound, "", approve(t, waiting, "n2", 2)},
		"the token expired while it waits":      {waiting, hour + 1000, model.CodeTokenExpired, "", admit(n2, 2)},
		"the token expired after the approval":  {approved, 2*hour - 1, "", joined, admit(n2, 2)},
		"the approval lapsed":                   {approved, 2 * hour, model.CodeTokenExpired, "", admit(n2, 2)},
		"revoked after the approval": {run(t, approved, hour, revoke), hour, model.CodeTokenRevoked, "",
			admit(n2, 2)},
		"approve after the revocation": {run(t, waiting, 2000, revoke), 2000, model.CodeNotFound, "",
			approve(t, waiting, "n2", 2)},
		"it waited for a day": {two, 24*hour + 2000, model.CodeNotFound, "", approve(t, two, "n2", 2)},
		"it waits again after a day": {two, 24*hour + 2000, "", waitsEvent, with(waits("n2", 2),
			func(c *NewcomerWait) { c.Token, c.Verifier = "long00000000", hashOf('l') })},
		"others begin to wait later": {waiting, hour + 500, "", "newcomer.waits member/server:s4 waits",
			serverWaits("s4", 4, nil)},
	} {
		t.Run(name, func(t *testing.T) { checked(t, test.s, test.at, test.code, test.events, test.try) })
	}
	after := run(t, run(t, waiting, 2000, revoke), 2000, serverWaits("s4", 4, nil))
	if after.Newcomers.Len() != 1 {
		t.Errorf("the newcomer of a revoked token stayed: %v", rowsOf(after.Newcomers))
	}
}

func TestNewcomerRefusals(t *testing.T) {
	start := approvalState(t)
	off := start.Settings
	off.JoinApproval = false
	waiting := run(t, start, 2000, waits("n2", 2))
	approved := run(t, waiting, 2000, approve(t, waiting, "n2", 2))
	rejected := run(t, waiting, 2000, reject(t, waiting, "n2", 2))
	for name, test := range map[string]struct {
		s    State
		code model.Code
		says string
		try  Command
	}{
		"not needed": {run(t, start, 2000, &SettingsSet{Settings: off}), model.CodeBusy, "no approval", waits("n2", 2)},
		"no key":     {start, model.CodeInvalid, "has no key", waitsWithout(waits("n2", 2))},
		"short key": {start, model.CodeInvalid, "3 bytes", with(waits("n2", 2),
			func(c *NewcomerWait) { c.Agent = []byte("abc") })},
		"long address": {start, model.CodeInvalid, "more than", with(waits("n2", 2),
			func(c *NewcomerWait) { c.Address = strings.Repeat("x", 400) })},
		"another secret": {start, model.CodeTokenInvalid, "", with(waits("n2", 2),
			func(c *NewcomerWait) { c.Verifier = hashOf(9) })},
		"another role": {start, model.CodeTokenRole, "", with(serverWaits("s4", 4, nil),
			func(c *NewcomerWait) { c.Token, c.Verifier = agentToken, hashOf('a') })},
		"another name":          {start, model.CodeTokenName, "", waits("x2", 2)},
		"a taken name":          {start, model.CodeNameTaken, "", waits("n1", 2)},
		"more than uses":        {waiting, model.CodeTokenUsed, "1 uses left, and 1 newcomers wait", waits("n3", 3)},
		"approved and waiting":  {approved, model.CodeTokenUsed, "wait by it already", waits("n3", 3)},
		"approve nobody":        {start, model.CodeNotFound, "agent:n2", &NewcomerApprove{agentNamed("n2"), hashOf(2), 1}},
		"approve another key":   {waiting, model.CodeNotFound, "", &NewcomerApprove{agentNamed("n2"), hashOf(3), 1}},
		"approve as a server":   {waiting, model.CodeNotFound, "", &NewcomerApprove{serverNamed("n2"), hashOf(2), 1}},
		"approve twice":         {approved, model.CodeConflict, "was approved already by", approve(t, approved, "n2", 2)},
		"reject once approved":  {approved, model.CodeConflict, "was approved already by", reject(t, approved, "n2", 2)},
		"reject twice":          {rejected, model.CodeConflict, "was rejected already by", reject(t, rejected, "n2", 2)},
		"approve once rejected": {rejected, model.CodeConflict, "was rejected already by", approve(t, rejected, "n2", 2)},
		"join once rejected":    {rejected, model.CodeApprovalRejected, "was rejected by", admit(agentNamed("n2"), 2)},
		"others may wait":       {rejected, "", "", waits("n3", 3)},
	} {
		t.Run(name, func(t *testing.T) {
			_, results := test.s.Apply(test.s.Index+1, 1, Entry{Format: model.CurrentFormat, At: 2000, Actor: "cli:bob",
				Groups: [][]Command{{test.try}}})
			wantCode(t, name, results[0].Refusal, test.code)
			if r := results[0].Refusal; r != nil && !strings.Contains(r.Message, test.says) {
				t.Errorf("it says %q, not %q", r.Message, test.says)
			}
		})
	}
}

func waitsWithout(c *NewcomerWait) *NewcomerWait { c.Agent = nil; return c }

// A member that joins again with its own key is no newcomer. Without the setting, nobody is held, and nobody waits on.
func TestApprovalIsForNewcomersOnly(t *testing.T) {
	s := approvalState(t)
	checked(t, s, 2000, "", "member.joined member/agent:n1 joined", admit(agentNamed("n1"), 1))
	s = run(t, s, 2000, waits("n2", 2))
	off := s.Settings
	off.JoinApproval = false
	s = checked(t, s, 2000, "", "settings.changed settings ", &SettingsSet{Settings: off})
	if s.Newcomers.Len() != 0 {
		t.Errorf("%d newcomers wait for nothing", s.Newcomers.Len())
	}
	checked(t, s, 2000, "", "member.joined member/agent:n2 joined", admit(agentNamed("n2"), 2))
}

// The table is bounded. A rejected newcomer makes room, one that waits does not.
func TestNewcomersAreBounded(t *testing.T) {
	s := approvalState(t)
	s = run(t, s, 2000,
		&TokenCreate{ID: "big100000000", Role: "server", Verifier: hashOf('b'), TTL: model.Hour, Uses: 1000})
	f := s.fork()
	for i := range maxNewcomers {
		key := hashOf(0)
		key[0], key[1] = byte(i>>8), byte(i)
		f.putNewcomer(&Newcomer{Name: fmt.Sprint("x", i), Agent: key, Token: "big100000000", Since: 2000,
			Index: uint64(i/500) + 1})
	}
	full := f.publish()
	checked(t, full, 2000, model.CodeConflict, "", serverWaits("s4", 4, nil))
	some, _ := full.Newcomers.Get(newcomerKey("x7", append([]byte{0, 7}, make([]byte, 30)...)))
	full = run(t, full, 2000, &NewcomerReject{some.Subject(), some.Key(), some.Index})
	next := checked(t, full, 2000, "", "newcomer.waits member/server:s4 waits", serverWaits("s4", 4, nil))
	if len(next.NewcomersNamed("x7")) != 0 || next.Newcomers.Len() != maxNewcomers {
		t.Errorf("%d newcomers, x7: %v", next.Newcomers.Len(), next.NewcomersNamed("x7"))
	}
}

// A restore brings no approval back, undoes no rejection, and does not turn join_approval off.
func TestRestoreKeepsNewcomers(t *testing.T) {
	before := trustState(t)
	waiting := run(t, approvalState(t), 2000, waits("n2", 2), serverWaits("s4", 4, nil))
	approved := run(t, waiting, 2000, approve(t, waiting, "n2", 2))
	live := run(t, approved, 2000, reject(t, approved, "s4", 4), admit(agentNamed("n2"), 2),
		&MemberRevoke{Subject: agentNamed("n2")})
	restore := func(old State) State {
		old = old.WithTrustOf(live)
		old.Index = live.Index
		return run(t, old, 3000, &RestoreMark{})
	}
	for name, old := range map[string]State{"before": before, "waiting": waiting, "approved": approved} {
		s := restore(old)
		if err := CheckTrust(live, s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checked(t, s, 3000, model.CodeTokenUsed, "", admit(agentNamed("n2"), 2))
		s4 := with(admit(serverNamed("s4"), 4), func(c *MemberAdmit) { c.Token, c.Verifier = "many00000000", hashOf('m') })
		checked(t, s, 3000, model.CodeApprovalRejected, "", s4)
		if !s.Settings.JoinApproval || s.Newcomers.Len() != 1 {
			t.Errorf("%s: join_approval is %v, newcomers %v", name, s.Settings.JoinApproval, rowsOf(s.Newcomers))
		}
	}
	forgot := approved
	forgot.Index = live.Index
	wantFinding(t, CheckTrust(live, run(t, forgot, 3000, &RestoreMark{})), S19, "came back")
	recovered := run(t, approved, 3000, &RestoreMark{Recovered: true})
	if recovered.Newcomers.Len() != 0 {
		t.Errorf("after a recovery: %v", rowsOf(recovered.Newcomers))
	}
	if kept := before.WithTrustOf(before); kept.Settings.JoinApproval {
		t.Error("a restore turned join_approval on")
	}
}

// A restore neither opens nor lengthens the time in which machines return by themselves.
func TestRestoreKeepsRejoinGrace(t *testing.T) {
	for _, one := range []struct{ old, live, want model.Duration }{{90, 0, 0}, {90, 30, 30}, {0, 90, 0}, {30, 90, 30}} {
		old, live := approvalState(t), approvalState(t)
		old.Settings.RejoinGrace, live.Settings.RejoinGrace = one.old, one.live
		if got := old.WithTrustOf(live).Settings.RejoinGrace; got != one.want {
			t.Errorf("%d in the snapshot and %d before the restore lead to %d", one.old, one.live, got)
		}
	}
}

// Check finds rows that no entry makes, and CheckStep finds a decision that changes.
func TestCheckFindsBrokenNewcomers(t *testing.T) {
	good := run(t, approvalState(t), 2000, waits("n2", 2))
	good = run(t, good, 2000, approve(t, good, "n2", 2))
	key := newcomerKey("n2", hashOf(2))
	for says, spoil := range map[string]func(*Newcomer){
		"its row is of":          func(n *Newcomer) { n.Name = "n3" },
		"keys of 32 and 3 bytes": func(n *Newcomer) { n.Server, n.Agent = n.Agent, []byte("abc") },
		"and rejected at":        func(n *Newcomer) { n.RejectedIndex = 1 },
		"waits since index":      func(n *Newcomer) { n.Index = 1 << 40 },
	} {
		s := good.fork()
		edit(&s.Newcomers, key, spoil)
		wantFinding(t, Check(*s), "", says)
	}
	for says, spoil := range map[string]func(*Newcomer){
		"the decision about newcomer":   func(n *Newcomer) { n.ApprovedIndex = 0 },
		"changed its keys or its token": func(n *Newcomer) { n.Token = serverToken },
		"of index 1 came back":          func(n *Newcomer) { n.Index = 1 },
	} {
		s := good.fork()
		edit(&s.Newcomers, key, spoil)
		wantFinding(t, CheckTrust(good, *s), S19, says)
	}
}
