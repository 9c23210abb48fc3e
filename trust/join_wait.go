package trust

import (
	"context"
	"errors"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Bounds of what is recorded of a newcomer, in bytes.
const (
	maxWaitingAddress = 100
	maxWaitingVersion = 100
)

// recordWaiting records newcomers whose admission was refused because a person has to approve it. It returns the
// refusal that the newcomer gets. Any other refusal is returned as it is. A newcomer that asks again makes no entry in
// the log.
func (e *Engine) recordWaiting(ctx context.Context, r transport.JoinRequest, all []newcomer, refusal error) error {
	if !errors.Is(refusal, &model.Error{Code: model.CodeApprovalPending}) {
		return refusal
	}
	wait, state := waitOf(r, all), e.cfg.Store.Current()
	draft := state.NewDraft(max(state.Now, e.cfg.Servers.Now()))
	if refusal := draft.Try(wait); refusal != nil {
		return refusal
	}
	if changes(state, draft.State(), wait.Name) {
		// One machine, or several with one name, may ask with ever new keys.
		if len(state.NewcomersNamed(wait.Name)) > 0 && !e.repeats.take("newcomer by "+string(wait.Token)) {
			return model.Refuse(model.CodeRateLimited, "newcomers named %s ask with other keys too often", wait.Name).
				WithHint("wait a few seconds, then try again")
		}
		if err := e.cfg.Servers.Submit(ctx, []fsm.Command{wait}); err != nil {
			return err
		}
		e.log.Info("a newcomer waits until a person approves it", "newcomer", all[0].admit.Subject, "token", wait.Token,
			"key", model.Fingerprint(all[0].admit.Key), "address", wait.Address)
	}
	if now := tryGroup(e.cfg.Servers, e.cfg.Store.Current(), group(all)); now != nil {
		return now // it names the newcomer as its row does
	}
	return refusal // a person approved it at this moment, so it is admitted when it asks again
}

// changes reports whether the newcomers of a name differ between two states.
func changes(before, after *fsm.State, name string) bool {
	a, b := before.NewcomersNamed(name), after.NewcomersNamed(name)
	if len(a) != len(b) {
		return true
	}
	for i := range a {
		if a[i] != b[i] {
			return true
		}
	}
	return false
}

// waitOf returns the command that records newcomers of one name.
func waitOf(r transport.JoinRequest, all []newcomer) *fsm.NewcomerWait {
	first := all[0].admit
	wait := &fsm.NewcomerWait{Name: first.Subject.Name, Token: first.Token, Verifier: first.Verifier,
		Address: model.ClipText(r.Address, maxWaitingAddress), Version: model.ClipText(r.Version, maxWaitingVersion)}
	for _, n := range all {
		if n.request.Role == pki.RoleServer {
			wait.Server = n.admit.Key
		} else {
			wait.Agent = n.admit.Key
		}
	}
	return wait
}
