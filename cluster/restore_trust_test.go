package cluster

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// An older snapshot brings back neither the use of a token that was spent since, nor a token or a member that was
// revoked since. It also keeps the keys. Every server has this state after a restart too.
func TestRestoreKeepsTrust(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		leader := r.leader(time.Second)
		ctx := context.Background()
		hash := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
		try := func(c fsm.Command) *model.Error {
			t.Helper()
			results, err := leader.Propose(ctx, fsm.Entry{Actor: "cli:alice", Groups: [][]fsm.Command{{c}}})
			if err != nil {
				t.Fatal(err)
			}
			return results[0].Refusal
		}
		do := func(c fsm.Command) {
			t.Helper()
			if refusal := try(c); refusal != nil {
				t.Fatal(refusal)
			}
		}
		n1, n2 := model.Subject{Kind: model.SubjectAgent, Name: "n1"}, model.Subject{Kind: model.SubjectAgent, Name: "n2"}
		admit := func(who model.Subject, key byte) *fsm.MemberAdmit {
			return &fsm.MemberAdmit{Subject: who, Key: hash(key), NotAfter: 1, Token: "aaaaaaaaaaaa", Verifier: hash(1)}
		}
		put := func(version uint64, phase model.KeyPhase) *fsm.KeyPut {
			return &fsm.KeyPut{Name: "data/1", Version: version, Phase: phase, Under: "kek", Sealed: []byte{1}}
		}
		do(put(1, model.KeyActive))
		do(&fsm.TokenCreate{ID: "aaaaaaaaaaaa", Role: "agent", Verifier: hash(1), TTL: model.Hour, Uses: 2})
		do(&fsm.TokenCreate{ID: "bbbbbbbbbbbb", Role: "agent", Verifier: hash(2), TTL: model.Hour, Uses: 2})
		do(admit(n1, 1))
		var saved bytes.Buffer
		if err := leader.Save(ctx, &saved); err != nil {
			t.Fatal(err)
		}
		do(admit(n2, 2))
		do(&fsm.MemberRevoke{Subject: n1, Reason: "stolen"})
		do(&fsm.TokenRevoke{ID: "bbbbbbbbbbbb"})
		do(put(2, model.KeyRetired))
		live := leader.machine.State()
		if err := leader.Restore(ctx, bytes.NewReader(saved.Bytes())); err != nil {
			t.Fatal(err)
		}
		r.agree(30 * time.Second)
		for _, s := range r.running() {
			s.stop()
		}
		for i := 1; i <= 3; i++ {
			r.start(i, nil)
		}
		leader = r.leader(20 * time.Second)
		r.agree(30 * time.Second)
		now := leader.machine.State()
		if err := fsm.Check(now); err != nil || !now.Unconfirmed {
			t.Errorf("unconfirmed %v: %v", now.Unconfirmed, err)
		}
		if err := fsm.CheckTrust(live, now); err != nil {
			t.Errorf("the restored state:\n%v", err)
		}
		if m, ok := now.TrustMemberOf(n1); !ok || m.RevokedIndex == 0 || m.Counts(hash(1)) {
			t.Errorf("n1 is %+v", m)
		}
		if m, ok := now.TrustMemberOf(n2); !ok || !m.Counts(hash(2)) {
			t.Errorf("n2 is %+v", m)
		}
		if refusal := try(admit(n1, 3)); refusal == nil || refusal.Code != model.CodeTokenUsed {
			t.Errorf("a spent token: %v", refusal)
		}
		if b, _ := now.JoinTokens.Get("bbbbbbbbbbbb"); b == nil || b.RevokedIndex == 0 {
			t.Errorf("the revoked token is %+v", b)
		}
		if keys := now.KeysOf(model.KeyData); len(keys) != 1 || keys[0].Version != 2 || keys[0].Phase != model.KeyRetired {
			t.Errorf("the keys are %+v", keys)
		}
	})
}

// An older snapshot does not turn join_approval off, and undoes no decision about a newcomer.
func TestRestoreKeepsApproval(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		leader := r.leader(time.Second)
		ctx := context.Background()
		hash := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
		try := func(c fsm.Command) *model.Error {
			t.Helper()
			results, err := leader.Propose(ctx, fsm.Entry{Actor: "cli:alice", Groups: [][]fsm.Command{{c}}})
			if err != nil {
				t.Fatal(err)
			}
			return results[0].Refusal
		}
		do := func(c fsm.Command) {
			t.Helper()
			if refusal := try(c); refusal != nil {
				t.Fatal(refusal)
			}
		}
		do(&fsm.TokenCreate{ID: "aaaaaaaaaaaa", Role: "agent", Verifier: hash(1), TTL: model.Hour, Uses: 2})
		var saved bytes.Buffer
		if err := leader.Save(ctx, &saved); err != nil {
			t.Fatal(err)
		}
		settings := leader.machine.State().Settings
		settings.JoinApproval = true
		do(&fsm.SettingsSet{Settings: settings})
		n1 := model.Subject{Kind: model.SubjectAgent, Name: "n1"}
		do(&fsm.NewcomerWait{Name: n1.Name, Agent: hash(2), Token: "aaaaaaaaaaaa", Verifier: hash(1)})
		live := leader.machine.State()
		do(&fsm.NewcomerReject{Newcomer: n1, Key: hash(2), Index: live.NewcomersNamed("n1")[0].Index})
		if err := leader.Restore(ctx, bytes.NewReader(saved.Bytes())); err != nil {
			t.Fatal(err)
		}
		r.agree(30 * time.Second)
		if now := leader.machine.State(); !now.Settings.JoinApproval || now.Newcomers.Len() != 1 {
			t.Errorf("join_approval is %v, with %d newcomers", now.Settings.JoinApproval, now.Newcomers.Len())
		}
		admit := &fsm.MemberAdmit{Subject: n1, Key: hash(2), NotAfter: 1, Token: "aaaaaaaaaaaa", Verifier: hash(1)}
		if refusal := try(admit); refusal == nil || refusal.Code != model.CodeApprovalRejected {
			t.Errorf("the rejected newcomer: %v", refusal)
		}
	})
}

// A write that a restore may have lost is never acknowledged, even if it was applied before.
func TestRestoreAcknowledgesNoLostWrite(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		leader := r.leader(time.Second)
		ctx := context.Background()
		var saved bytes.Buffer
		if err := leader.Save(ctx, &saved); err != nil {
			t.Fatal(err)
		}
		budget := &fsm.BudgetSet{Name: "b", Spec: model.BudgetSpec{MinReady: &model.Amount{N: 1}}}
		entry := fsm.Entry{Groups: [][]fsm.Command{{budget}}}
		p, err := leader.Submit(ctx, entry)
		if err != nil {
			t.Fatal(err)
		}
		if err := leader.ReadBarrier(ctx); err != nil || leader.machine.State().Budgets.Len() != 1 {
			t.Fatalf("the budget is not in the state: %v", err)
		}
		if err := leader.Restore(ctx, bytes.NewReader(saved.Bytes())); err != nil {
			t.Fatal(err)
		}
		results, err := p.Wait(ctx)
		refused(t, err, model.CodeUnknownOutcome)
		if results != nil {
			t.Errorf("acknowledged: %+v", results)
		}
		leader.restores.Add(1) // as if a restore were under way
		_, err = leader.Submit(ctx, entry)
		refused(t, err, model.CodeBusy)
		leader.restores.Add(1)
		if _, err := leader.Propose(ctx, entry); err != nil {
			t.Errorf("after the restore: %v", err)
		}
	})
}
