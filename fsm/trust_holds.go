package fsm

import (
	"bytes"
	"crypto/sha256"

	"github.com/outspan/outspan/model"
)

// MemberHolds records which CAs and which gossip keys a member uses. A rotation waits until the rows of all members
// have the digests that it expects. If the row has these digests already, nothing changes. Codes: invalid; not_found
// without a row; member_revoked.
type MemberHolds struct {
	Subject model.Subject `cbor:"1,keyasint"`
	Roots   []byte        `cbor:"2,keyasint"` // pki.RootsDigest of the CAs that the member trusts
	// Gossip is the pki.GossipDigest of the member's gossip keys. It is empty if the member does not gossip.
	Gossip []byte `cbor:"3,keyasint,omitempty"`
}

func (c *MemberHolds) apply(s *State) error {
	if !validDigest(c.Roots) || !validDigest(c.Gossip) {
		return model.Refuse(model.CodeInvalid, "the digests of the keys of %s have %d and %d bytes, not %d",
			model.ClipText(c.Subject.String(), 100), len(c.Roots), len(c.Gossip), sha256.Size)
	}
	m, ok := s.TrustMemberOf(c.Subject)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "%q is no member of the cluster", model.ClipText(c.Subject.String(), 100)).
			WithHint("join again with a token: outspan join")
	case m.RevokedIndex != 0:
		return model.Refuse(model.CodeMemberRevoked, "%s was revoked", c.Subject).
			WithHint("join again with a token: outspan join")
	case bytes.Equal(m.Roots, c.Roots) && bytes.Equal(m.Gossip, c.Gossip):
		return nil
	}
	next := *m
	next.Roots, next.Gossip = c.Roots, c.Gossip
	s.putMember(&next)
	s.touch("holds")
	return nil
}

func validDigest(d []byte) bool { return len(d) == 0 || len(d) == sha256.Size }
