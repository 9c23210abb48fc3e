package trust

import (
	"bytes"
	"cmp"
	"math"
	"slices"

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
	waiting []counted       // servers first

	from, to uint64 // see ends
}

// progress computes the progress from a state. Everything but the presence of the members follows from the state and
// the configuration of the log, so each leader comes to the same result.
func (r *caRotation) progress(state *fsm.State) (p caProgress) {
	for _, row := range state.KeysOf(model.KeyCA) {
		switch row.Phase {
		case model.KeyIncoming:
			p.step, p.next = api.CADistribute, row
		case model.KeyActive:
			p.next = cmp.Or(p.next, row)
			p.old = append(p.old, row)
			p.from = row.ActiveIndex
		case model.KeyRetired:
			p.old = append(p.old, row)
		}
	}
	if p.to = math.MaxUint64; p.next == nil {
		return caProgress{}
	}
	if p.step != api.CADistribute {
		p.old = slices.DeleteFunc(p.old, func(row *fsm.TrustKey) bool { return row == p.next })
		p.step = api.CAForget
		if len(p.old) > 0 {
			p.step = api.CARenew
			p.from, p.to = p.old[0].ActiveIndex, p.next.ActiveIndex
		}
	}
	digest := pki.RootsDigest(roots(state))
	for _, m := range r.members.counted(state) {
		if p.done(m, digest) {
			continue
		}
		if !m.in(p.next.Passed) {
			p.waiting = append(p.waiting, m)
		}
	}
	switch {
	case len(p.waiting) > 0:
	case p.step == api.CARenew && r.servers.Now() < keptUntil(p.next):
		p.step = api.CAGrace
	case p.step == api.CAForget:
		p.step = ""
	}
	return p
}

// done reports whether a member has done its part of the step. digest is that of all CAs of the state.
func (p *caProgress) done(m counted, digest []byte) bool {
	switch p.step {
	case api.CADistribute:
		return m.row != nil && bytes.Equal(m.row.Roots, digest)
	case api.CARenew: // an agent's previous key counts until it uses the newest one
		return m.row != nil && m.row.CA == p.next.Name &&
			(m.who.Kind == model.SubjectServer || len(m.row.PreviousKey) == 0)
	default: // a member that never reported what it trusts joined before members did so
		return m.row == nil || m.expired || len(m.row.Roots) == 0 || bytes.Equal(m.row.Roots, digest)
	}
}

// ends reports whether a join token ends with the CA that is replaced or, without a rotation, would end with the active
// one. A token names the CA that was active when it was made. Tokens of CAs before that are of no use any more.
func (p *caProgress) ends(t *fsm.JoinToken) bool {
	return p.from < t.CreatedIndex && t.CreatedIndex <= p.to
}

// keptUntil returns the cluster time until which the CA before stays trusted at least.
func keptUntil(next *fsm.TrustKey) model.Time { return next.At.Add(next.Grace) }
