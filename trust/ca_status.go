package trust

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// maxShownWaiting is how many members of those that a rotation waits for are shown.
const maxShownWaiting = 10

// CAStatus says which CAs a state has, and how far a rotation has come. A server that does not lead does not know which
// other servers are absent. Code: internal for a damaged certificate in the state.
func (e *Engine) CAStatus(state *fsm.State) (api.CA, error) { return e.ca.status(state) }

func (r *caRotation) status(state *fsm.State) (api.CA, error) {
	out := api.CA{CAs: []api.CACertificate{}}
	for _, row := range state.KeysOf(model.KeyCA) {
		cert, err := x509.ParseCertificate(row.Public)
		if err != nil {
			return api.CA{}, model.Refuse(model.CodeInternal, "the certificate of the key %s is damaged: %v", row.Name, err)
		}
		sum := sha256.Sum256(row.Public)
		out.CAs = append(out.CAs, api.CACertificate{Name: row.Name, Phase: row.Phase,
			Fingerprint: hex.EncodeToString(sum[:]), NotAfter: cert.NotAfter.UTC()})
	}
	p := r.progress(state)
	now := max(state.Now, r.servers.Now())
	for _, t := range state.JoinTokens.All() {
		if p.ends(t) && t.RevokedIndex == 0 && t.Used < t.Uses && now < t.Expires {
			out.Tokens++
		}
	}
	for _, n := range state.Newcomers.All() {
		if t, ok := state.JoinTokens.Get(n.Token); ok && p.ends(t) && n.RejectedIndex == 0 && !n.Over(state, now) {
			out.Newcomers++
		}
	}
	if p.step == "" {
		return out, nil
	}
	rotation := &api.CARotation{Step: p.step, To: p.next.Name, Since: wallAt(now, p.next.At), Waiting: len(p.waiting),
		WaitingFor: []api.CAWaiting{}, Passed: p.next.Passed}
	if rotation.Passed == nil {
		rotation.Passed = []string{}
	}
	if p.next.Grace > 0 && p.next.Phase == model.KeyActive && len(p.old) > 0 {
		until := wallAt(now, keptUntil(p.next))
		rotation.KeptUntil = &until
	}
	for _, m := range p.waiting[:min(len(p.waiting), maxShownWaiting)] {
		rotation.WaitingFor = append(rotation.WaitingFor, api.CAWaiting{Subject: m.who.String(), Absent: m.absent})
	}
	out.Rotation = rotation
	return out, nil
}

// caWithID returns the name of the CA whose key has an id, as in the certificates that it signs. It is empty if the
// state has no such CA.
func caWithID(state *fsm.State, id []byte) model.KeyName {
	for _, row := range state.KeysOf(model.KeyCA) {
		cert, err := x509.ParseCertificate(row.Public)
		if err == nil && len(id) > 0 && bytes.Equal(cert.SubjectKeyId, id) {
			return row.Name
		}
	}
	return ""
}
