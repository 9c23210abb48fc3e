package trust

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// caProgress says how far the replacement of the CA has come. step is empty if there is none.
type caProgress struct {
	step    api.CAStep
	next    *fsm.TrustKey   // the new CA
	old     []*fsm.TrustKey // the CAs that it replaces and that are still trusted
	waiting []caMember      // servers first
}

// caMember is a member that a rotation of the CA waits for.
type caMember struct {
	who    model.Subject
	row    *fsm.TrustMember // nil if it is a server without a row
	absent bool             // it is off, or the servers don't reach it
}

// caProgress computes the progress from a state. Everything but the presence of the members follows from the state and
// the configuration of the log, so each leader comes to the same result.
func (e *Engine) caProgress(state *fsm.State) (p caProgress) {
	for _, row := range state.KeysOf(model.KeyCA) {
		switch row.Phase {
		case model.KeyIncoming:
			p.step, p.next = api.CADistribute, row
		case model.KeyActive:
			p.next = cmp.Or(p.next, row)
			p.old = append(p.old, row)
		case model.KeyRetired:
			p.old = append(p.old, row)
		}
	}
	if p.next == nil {
		return caProgress{}
	}
	if p.step != api.CADistribute {
		p.old = slices.DeleteFunc(p.old, func(row *fsm.TrustKey) bool { return row == p.next })
		p.step = api.CAForget
		if len(p.old) > 0 {
			p.step = api.CARenew
		}
	}
	digest := pki.RootsDigest(roots(state))
	for _, m := range e.caMembers(state) {
		if !p.done(m, digest) && !slices.Contains(p.next.Passed, m.who.String()) {
			p.waiting = append(p.waiting, m)
		}
	}
	switch {
	case len(p.waiting) > 0:
	case p.step == api.CARenew && e.cfg.Servers.Now() < keptUntil(p.next):
		p.step = api.CAGrace
	case p.step == api.CAForget:
		p.step = ""
	}
	return p
}

// done reports whether a member has done its part of the step. digest is that of all CAs of the state.
func (p *caProgress) done(m caMember, digest []byte) bool {
	switch p.step {
	case api.CADistribute:
		return m.row != nil && bytes.Equal(m.row.Roots, digest)
	case api.CARenew: // an agent's previous key counts until it uses the newest one
		return m.row != nil && m.row.CA == p.next.Name &&
			(m.who.Kind == model.SubjectServer || len(m.row.PreviousKey) == 0)
	default: // who has never told what it trusts was a member before there was anything to tell
		return m.row == nil || len(m.row.Roots) == 0 || bytes.Equal(m.row.Roots, digest)
	}
}

// keptUntil returns the cluster time until which the CA before stays trusted at least.
func keptUntil(next *fsm.TrustKey) model.Time { return next.At.Add(next.Grace) }

// caMembers returns the members that a rotation waits for: the servers in the configuration of the log, and the agents
// with a certificate that has not expired. Revoked members don't count. Only the leader knows which servers are absent.
func (e *Engine) caMembers(state *fsm.State) (all []caMember) {
	for _, s := range e.cfg.Servers.Servers() {
		m := caMember{who: model.Subject{Kind: model.SubjectServer, Name: s.Name}}
		m.row, _ = state.TrustMemberOf(m.who)
		m.absent = !s.Answers && m.who != e.self
		if m.row == nil || m.row.RevokedIndex == 0 {
			all = append(all, m)
		}
	}
	now := time.Now().UnixMilli()
	for _, row := range state.TrustMembers.All() {
		if row.Subject.Kind != model.SubjectAgent || row.RevokedIndex != 0 || row.NotAfter <= now {
			continue
		}
		n, ok := state.NodeOf(row.Subject.Name)
		absent := !ok || n.Health == model.HealthOffline || n.Health == model.HealthUnreachable
		all = append(all, caMember{row.Subject, row, absent})
	}
	return all
}
