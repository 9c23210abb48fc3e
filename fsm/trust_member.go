package fsm

import (
	"bytes"
	"cmp"
	"crypto/sha256"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// Bounds of the rows of members.
const (
	maxMembers      = 20_000
	maxRevokeReason = 256 // bytes
	maxEarlier      = 16
	memberKept      = int64(90 * 24 * model.Hour) // Unix ms; see roomForMember
)

// TrustMember is a server or agent that a join token admitted. A key is the SHA-256 of the public key (SPKI) in the
// member's certificate. A certificate counts only while its key is in the row and the row is not revoked; see AnyKey.
type TrustMember struct {
	Subject model.Subject `cbor:"1,keyasint"` // of kind server or agent
	// Key is the newest key. It is empty if a server without a row was revoked, and for a new row of AgentsFound.
	Key []byte `cbor:"2,keyasint"`
	// PreviousKey counts too, because the member may not have got the certificate of the newest key. It is empty once the
	// member has used the newest key.
	PreviousKey  []byte        `cbor:"3,keyasint,omitempty"`
	NotAfter     int64         `cbor:"4,keyasint"` // when the newest certificate expires, in Unix ms, or 0 without a key
	Token        model.TokenID `cbor:"5,keyasint"` // the token that admitted the member last
	IssuedIndex  uint64        `cbor:"6,keyasint"` // index of the last admission or renewal
	RevokedIndex uint64        `cbor:"7,keyasint,omitempty"`
	Reason       string        `cbor:"8,keyasint,omitempty"` // why it was revoked
	// VoidBefore is the State.MomentNumber of the last revocation, or 0. It stays when the member is admitted again.
	// Certificates of the member that an earlier state admitted are void; see pki.AdmittedAt.
	VoidBefore uint64 `cbor:"9,keyasint,omitempty"`
	// Labels are those of the token that admitted an agent. Its node has them, whatever its configuration says.
	Labels map[string]string `cbor:"10,keyasint,omitempty"`
	// AnyKey says that an agent may have got a newer key than the row has, because the state was recovered, or that the
	// row has none yet; see AgentsFound. The first key that it shows then takes the place of the others. Until then, each
	// certificate of the CA for its name counts.
	AnyKey bool `cbor:"11,keyasint,omitempty"`
	// Roots and Gossip say which keys the member uses; see MemberHolds. They are empty until it has said so.
	Roots  []byte `cbor:"13,keyasint,omitempty"`
	Gossip []byte `cbor:"14,keyasint,omitempty"`
	// Earlier are tokens that admitted the member before Token did and admitted others still, the newest maxEarlier.
	Earlier []model.TokenID `cbor:"15,keyasint,omitempty"`
	// CA names the key that signed the newest certificate. It is empty if that is not known, and may have been dropped.
	CA model.KeyName `cbor:"19,keyasint,omitempty"`
}

// MemberAdmit admits a newcomer by a join token and spends one use of it. A token of role server admits agents too. In
// one group of commands, the admission of a server pays for that of the agent of the same name. A repeated admission
// with the same key and token costs no use, even if the token has ended since by its time or its uses. A revoked member
// is admitted again only with a new key, and by a token that was made after its revocation. Codes: invalid;
// token_invalid, token_revoked (also if the token is older than the revocation), token_role, token_name, token_expired,
// token_used; name_taken if another key has the name; member_revoked for a revoked key; conflict if there are too many
// members; stale if CA was dropped; approval_pending and approval_rejected while join_approval is on, see Newcomer.
type MemberAdmit struct {
	Subject  model.Subject `cbor:"1,keyasint"`
	Key      []byte        `cbor:"2,keyasint"`
	NotAfter int64         `cbor:"3,keyasint"`
	Token    model.TokenID `cbor:"4,keyasint"`
	Verifier []byte        `cbor:"5,keyasint" debug:"secret"`
	CA       model.KeyName `cbor:"19,keyasint,omitempty"` // signed the certificate; see TrustMember
}

// MemberRenew gives a member a new key. Old is the key that the member used to ask for it: its newest key or the
// previous one. Old becomes the previous key. A repeated renewal changes nothing but NotAfter. If Old and Key are both
// the newest key, the member has used it, and the previous key no longer counts. While AnyKey is set, Old may be a key
// that the row does not have. If Old is the previous key and Key is new, there is an event: the answer with the newest
// key was lost, or two machines have the previous key. A server without a row gets one, because the state may have been
// recovered from a time before its admission. Whoever submits the command must know that the server belongs to the
// cluster. Codes: invalid; not_found for an agent; member_revoked; stale if Old no longer counts, if Key is the
// previous key, or if CA was dropped; conflict if there are too many members.
type MemberRenew struct {
	Subject  model.Subject `cbor:"1,keyasint"`
	Old      []byte        `cbor:"2,keyasint"`
	Key      []byte        `cbor:"3,keyasint"`
	NotAfter int64         `cbor:"4,keyasint"`
	CA       model.KeyName `cbor:"19,keyasint,omitempty"` // signed the certificate; see TrustMember
}

// MemberRevoke revokes a member: none of its keys counts any more. It also revokes the join tokens that admitted the
// member, if they have uses left, because the machine may still have them. If the member is an agent, the
// heartbeats of its node no longer count, so the node gets no instances and becomes offline. A server without a row
// gets one, because a recovered state may lack a server whose certificates are good. If the member is revoked already,
// nothing changes. Codes: invalid if Reason is too long; not_found for an agent, for a name that no server can have, or
// without a CA; conflict if there are too many members.
type MemberRevoke struct {
	Subject model.Subject `cbor:"1,keyasint"`
	Reason  string        `cbor:"2,keyasint,omitempty"`
}

// Counts reports whether a certificate with this key proves to be the member.
func (m *TrustMember) Counts(key []byte) bool { return m.RevokedIndex == 0 && (m.AnyKey || m.Had(key)) }

// LastRevoked returns the log index of the member's last revocation, or 0. It stays when the member is admitted again.
func (m *TrustMember) LastRevoked() uint64 { return m.VoidBefore & (1<<mintBits - 1) }

// Had reports whether key is in the row, also if the member is revoked.
func (m *TrustMember) Had(key []byte) bool {
	return len(key) > 0 && (bytes.Equal(key, m.Key) || bytes.Equal(key, m.PreviousKey))
}

func (c *MemberAdmit) apply(s *State) error {
	token, refusal := c.mayUse(s)
	if refusal != nil {
		return refusal
	}
	if refusal := s.hasCA(c.CA); refusal != nil {
		return refusal
	}
	old, known := s.TrustMemberOf(c.Subject)
	if known && old.RevokedIndex == 0 && bytes.Equal(old.Key, c.Key) && old.Token == c.Token {
		s.reissue(old, old.PreviousKey, c.NotAfter, c.CA)
		return nil
	}
	free, newcomer := c.accompanied(s), c.newcomer(s)
	if refusal := c.mayJoin(s, token, old, free, newcomer.admits(s.Now)); refusal != nil {
		return refusal
	}
	if refusal := c.hold(s, old, newcomer); refusal != nil {
		return refusal
	}
	room, refusal := s.roomForMember(known)
	if refusal != nil {
		return refusal
	}
	if room != nil {
		s.delMember(room.Subject)
	}
	if !free {
		s.spend(token)
		s.entry.paid = c
	}
	row := &TrustMember{Subject: c.Subject, Key: c.Key, NotAfter: c.NotAfter, Token: c.Token, IssuedIndex: s.Index,
		CA: c.CA}
	if c.Subject.Kind == model.SubjectAgent {
		row.Labels = token.Labels
	}
	before := ""
	if known {
		row.VoidBefore, row.Earlier = old.VoidBefore, s.earlierTokens(old, c.Token)
		if old.RevokedIndex != 0 {
			before = "revoked"
		}
	}
	s.putMember(row)
	s.touchMember(c.Subject)
	data := map[string]string{"token": string(c.Token)}
	if newcomer.admits(s.Now) {
		data["approved_by"] = string(newcomer.DecidedBy)
	}
	newcomer.arrived(s, c.Subject)
	s.emit(Event{Type: model.EventMemberJoined, Subject: "member/" + c.Subject.String(), Before: before, After: "joined",
		Data: data})
	return nil
}

// mayUse returns the token if the newcomer has its secret and the token is for such newcomers. It does not check the
// token's time and uses, because a repeated admission needs neither.
func (c *MemberAdmit) mayUse(s *State) (*JoinToken, *model.Error) {
	if refusal := checkMember(c.Subject, c.NotAfter, c.Key); refusal != nil {
		return nil, refusal
	}
	token, refusal := TokenWith(s, c.Token, c.Verifier)
	switch {
	case refusal != nil:
		return nil, refusal
	case token.Role != string(model.SubjectServer) && token.Role != string(c.Subject.Kind):
		return nil, model.Refuse(model.CodeTokenRole, "join token %s admits the role %s, not %s", c.Token, token.Role,
			c.Subject.Kind).
			WithHint("%s --role %s", anotherToken, c.Subject.Kind)
	case !model.MatchGlob(token.NodeName, c.Subject.Name):
		return nil, model.Refuse(model.CodeTokenName, "join token %s admits only names such as %s, not %s", c.Token,
			token.NodeName, c.Subject.Name).
			WithHint("join with another --name, or %s", anotherToken)
	}
	return token, nil
}

// mayJoin refuses an admission that is not a repeated one, if the token has ended or the name is taken. old is the row
// of the name, or nil. free says that the admission costs no use. approved says that a person approved the newcomer, so
// the time of the token no longer matters.
func (c *MemberAdmit) mayJoin(s *State, token *JoinToken, old *TrustMember, free, approved bool) *model.Error {
	switch {
	case s.Now >= token.Expires && !approved:
		return model.Refuse(model.CodeTokenExpired, "join token %s has expired", c.Token).
			WithHint("make another token on a server with: outspan token create")
	case !free && token.Used >= token.Uses && !plant.Is(plant.SpentToken):
		return model.Refuse(model.CodeTokenUsed, "join token %s is spent: %d of %d uses", c.Token, token.Used, token.Uses).
			WithHint("make another token on a server with: outspan token create")
	case old == nil:
		return nil
	case old.RevokedIndex != 0 && token.CreatedIndex <= old.RevokedIndex:
		return model.Refuse(model.CodeTokenRevoked, "join token %s is older than the revocation of %s", c.Token, c.Subject).
			WithHint("make another token on a server with: outspan token create")
	case old.RevokedIndex != 0 && old.Had(c.Key):
		return model.Refuse(model.CodeMemberRevoked, "%s was revoked together with this key", c.Subject).
			WithHint("remove the key file on that machine and join again: that makes a new key")
	case old.RevokedIndex == 0 && !bytes.Equal(old.Key, c.Key):
		return model.Refuse(model.CodeNameTaken, "the name of %s belongs to a machine with another key", c.Subject).
			WithHint("join with another --name; if that machine is gone, or is this one: outspan %s revoke %s",
				commandOf(c.Subject.Kind), c.Subject.Name)
	}
	return nil
}

// commandOf returns the noun of the command line for members of a kind.
func commandOf(kind model.SubjectKind) string {
	if kind == model.SubjectServer {
		return "server"
	}
	return "node"
}

// accompanied reports whether an earlier command of the group spent a use of the same token to admit the server of this
// agent's name.
func (c *MemberAdmit) accompanied(s *State) bool {
	a := s.entry.paid
	return c.Subject.Kind == model.SubjectAgent && a != nil && a.Token == c.Token &&
		a.Subject == model.Subject{Kind: model.SubjectServer, Name: c.Subject.Name}
}

// spend takes one use of a token that has uses left.
func (s *State) spend(token *JoinToken) {
	next := *token
	if next.Used++; next.Used == next.Uses {
		next.Ended = max(s.Now, 1)
	}
	s.putJoinToken(&next)
	s.touch("tokens")
}

// roomForMember returns the row to drop for a new name: nil while there is room. Otherwise it returns the row of the
// agent whose certificate ended first, if that was memberKept ago, or else of the agent that was revoked first. An
// agent without a row is refused like a revoked one. A server without a row is admitted, so the rows of servers stay.
// known says that the name has a row already. Code: conflict.
func (s *State) roomForMember(known bool) (*TrustMember, *model.Error) {
	if known || s.TrustMembers.Len() < maxMembers {
		return nil, nil
	}
	var ended, revoked *TrustMember
	for _, m := range s.TrustMembers.All() {
		if m.Subject.Kind != model.SubjectAgent {
			continue
		}
		if m.overdue(s.Wall) && (ended == nil || m.NotAfter < ended.NotAfter) {
			ended = m
		}
		if m.RevokedIndex != 0 && (revoked == nil || m.RevokedIndex < revoked.RevokedIndex) {
			revoked = m
		}
	}
	first := cmp.Or(ended, revoked)
	if first == nil {
		return nil, model.Refuse(model.CodeConflict, "the cluster has %d members already", s.TrustMembers.Len()).
			WithHint("revoke members that are gone: outspan node revoke NAME")
	}
	return first, nil
}

// overdue reports whether the member's certificate ended so long ago that the row may be dropped to make room.
func (m *TrustMember) overdue(wall int64) bool { return wall-memberKept >= m.NotAfter }

// reissue notes a certificate for the newest key of a member. It writes nothing if that changes nothing. ca is empty if
// it is not known which CA signed the certificate.
func (s *State) reissue(m *TrustMember, previous []byte, notAfter int64, ca model.KeyName) {
	ca = cmp.Or(ca, m.CA)
	if m.NotAfter == notAfter && m.CA == ca && bytes.Equal(m.PreviousKey, previous) {
		return
	}
	next := *m
	next.CA = ca
	next.PreviousKey, next.NotAfter, next.IssuedIndex = previous, notAfter, s.Index
	s.putMember(&next)
	s.touchMember(m.Subject)
}

func (s *State) touchMember(who model.Subject) { s.touch("members", Topic("member/"+who.String())) }

// hasCA refuses a certificate of a CA that the state does not have: nobody would accept it.
func (s *State) hasCA(name model.KeyName) *model.Error {
	switch {
	case name == "":
		return nil
	case name.Kind() != model.KeyCA:
		return model.Refuse(model.CodeInvalid, "%q is no name of a CA", model.ClipText(string(name), 100))
	case !s.TrustKeys.Has(name):
		return model.Refuse(model.CodeStale, "the certificate is from the CA %s, which was dropped", name).
			WithHint("ask for another certificate")
	}
	return nil
}

// checkMember refuses what no member has: another kind, an invalid name, no end, or a key of another length.
func checkMember(who model.Subject, notAfter int64, keys ...[]byte) *model.Error {
	switch {
	case who.Kind != model.SubjectServer && who.Kind != model.SubjectAgent:
		return model.Refuse(model.CodeInvalid, "members are servers and agents, not %q",
			model.ClipText(string(who.Kind), 100))
	case !model.ValidName(who.Name):
		return model.Refuse(model.CodeInvalid, "the name %q: use 1 to 63 letters, digits, '-', '_' or '.'",
			model.ClipText(who.Name, 100))
	case notAfter <= 0:
		return model.Refuse(model.CodeInvalid, "the certificate of %s has the end %d", who, notAfter)
	}
	for _, key := range keys {
		if len(key) != sha256.Size {
			return model.Refuse(model.CodeInvalid, "the hash of the key of %s has %d bytes, not %d", who, len(key), sha256.Size)
		}
	}
	return nil
}

func (c *MemberRenew) apply(s *State) error {
	if refusal := checkMember(c.Subject, c.NotAfter, c.Old, c.Key); refusal != nil {
		return refusal
	}
	if refusal := s.hasCA(c.CA); refusal != nil {
		return refusal
	}
	m, ok := s.TrustMemberOf(c.Subject)
	isNewest, fromNewest := ok && bytes.Equal(c.Key, m.Key), ok && bytes.Equal(c.Old, m.Key)
	switch {
	case !ok && c.Subject.Kind == model.SubjectServer:
		return c.found(s)
	case !ok:
		return model.Refuse(model.CodeNotFound, "%s is no member of the cluster", c.Subject).
			WithHint("join again with a token: outspan join")
	case m.RevokedIndex != 0:
		return model.Refuse(model.CodeMemberRevoked, "%s was revoked", c.Subject).
			WithHint("join again with a token: outspan join")
	case m.AnyKey:
		c.pin(s, m)
		return nil
	case !m.Had(c.Old) && !plant.Is(plant.ReplacedKey):
		return model.Refuse(model.CodeStale, "%s renews a certificate that was replaced since", c.Subject).
			WithHint("renew with the newest certificate; if it is lost, revoke the member and join again")
	case isNewest && fromNewest:
		s.reissue(m, nil, c.NotAfter, c.CA)
		return nil
	case isNewest:
		s.reissue(m, m.PreviousKey, c.NotAfter, c.CA)
		return nil
	case bytes.Equal(c.Key, m.PreviousKey):
		return model.Refuse(model.CodeStale, "%s renews with a key that was replaced", c.Subject).WithHint("make a new key")
	}
	next := *m
	next.PreviousKey, next.Key, next.NotAfter, next.IssuedIndex = c.Old, c.Key, c.NotAfter, s.Index
	next.CA = c.CA
	s.putMember(&next)
	s.touchMember(c.Subject)
	if !fromNewest {
		s.emit(Event{Type: model.EventMemberRenewedTwice, Subject: "member/" + c.Subject.String(), After: "joined"})
	}
	return nil
}

// found gives a row to a server that has none.
func (c *MemberRenew) found(s *State) error {
	room, refusal := s.roomForMember(false)
	if refusal != nil {
		return refusal
	}
	if room != nil {
		s.delMember(room.Subject)
	}
	s.putMember(&TrustMember{Subject: c.Subject, Key: c.Key, NotAfter: c.NotAfter, IssuedIndex: s.Index,
		CA: c.CA})
	s.touchMember(c.Subject)
	s.emit(Event{Type: model.EventMemberJoined, Subject: "member/" + c.Subject.String(), After: "joined"})
	return nil
}

func (c *MemberRevoke) apply(s *State) error {
	if len(c.Reason) > maxRevokeReason {
		return model.Refuse(model.CodeInvalid, "the reason has %d bytes, at most %d are allowed", len(c.Reason),
			maxRevokeReason)
	}
	m, refusal := c.row(s)
	if refusal != nil {
		return refusal
	}
	if m.RevokedIndex != 0 {
		return nil
	}
	next := *m
	next.RevokedIndex, next.Reason, next.VoidBefore, next.AnyKey = s.Index, c.Reason, s.MomentNumber(), false
	s.putMember(&next)
	s.touchMember(c.Subject)
	s.touch("revoked")
	for _, token := range s.openTokens(m) {
		token.revoke(s)
	}
	if c.Subject.Kind == model.SubjectAgent {
		voidHeartbeats(s, c.Subject.Name)
	}
	s.emit(Event{Type: model.EventMemberRevoked, Subject: "member/" + c.Subject.String(), Before: "joined",
		After: "revoked", Data: map[string]string{"reason": c.Reason}})
	return nil
}
