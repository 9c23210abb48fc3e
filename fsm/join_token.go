package fsm

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"

	"github.com/outspan/outspan/model"
)

// Bounds of join tokens.
const (
	maxJoinTokens = 1000
	maxTokenUses  = 1000
	maxTokenTTL   = 365 * 24 * model.Hour
	tokenKept     = 24 * model.Hour // how long the row of a token is kept after the token has ended
)

// JoinToken is a token that admits newcomers. The state has no secret of it, only a hash.
type JoinToken struct {
	ID       model.TokenID `cbor:"1,keyasint"`
	Role     string        `cbor:"2,keyasint"` // "agent", or "server", which admits servers and their agents
	Verifier []byte        `cbor:"3,keyasint" debug:"secret"`
	Expires  model.Time    `cbor:"4,keyasint"` // the first moment at which the token admits nobody
	Uses     int           `cbor:"5,keyasint"` // how many admissions the token allows in all
	Used     int           `cbor:"6,keyasint,omitempty"`
	NodeName string        `cbor:"7,keyasint,omitempty"` // pattern for the newcomer's name; empty allows every name
	// Labels are for the nodes that the token admits; see TrustMember.
	Labels       map[string]string `cbor:"8,keyasint,omitempty"`
	Creator      model.Actor       `cbor:"9,keyasint,omitempty"`
	CreatedIndex uint64            `cbor:"10,keyasint"`
	RevokedIndex uint64            `cbor:"11,keyasint,omitempty"` // 0 unless an operator revoked the token
	Ended        model.Time        `cbor:"12,keyasint,omitempty"` // when it was revoked or spent; 0 before
}

// TokenCreate stores a new join token. Its creator is the actor of the entry. It also drops the rows of tokens that
// ended more than a day ago. Codes: invalid; conflict if the id is in use, or if there are too many tokens.
type TokenCreate struct {
	ID       model.TokenID     `cbor:"1,keyasint"`
	Role     string            `cbor:"2,keyasint"`
	Verifier []byte            `cbor:"3,keyasint" debug:"secret"`
	TTL      model.Duration    `cbor:"4,keyasint"` // from now; 1 s to 365 days
	Uses     int               `cbor:"5,keyasint"` // 1 to maxTokenUses
	NodeName string            `cbor:"6,keyasint,omitempty"`
	Labels   map[string]string `cbor:"7,keyasint,omitempty"`
}

// TokenRevoke revokes a join token for ever. Members that it has admitted stay. If the token is revoked already,
// nothing changes. Code: not_found.
type TokenRevoke struct {
	ID model.TokenID `cbor:"1,keyasint"`
}

// overdue reports whether the row of the token may be dropped.
func (t *JoinToken) overdue(now model.Time) bool {
	end := t.Expires
	if t.Ended != 0 {
		end = min(end, t.Ended)
	}
	return now >= end.Add(tokenKept)
}

const anotherToken = "make another token on a server with: outspan token create"

// TokenWith returns the join token with an id and the verifier of its secret. It checks neither the token's time nor
// its uses, because a repeated admission needs neither. The row is read-only. Codes: token_invalid, token_revoked.
func TokenWith(s *State, id model.TokenID, verifier []byte) (*JoinToken, *model.Error) {
	token, ok := s.JoinTokens.Get(id)
	switch {
	case !ok || subtle.ConstantTimeCompare(token.Verifier, verifier) != 1:
		return nil, model.Refuse(model.CodeTokenInvalid, "there is no join token %q with this secret",
			model.ClipText(string(id), 100)).
			WithHint("copy the whole token again, or %s", anotherToken)
	case token.RevokedIndex != 0:
		return nil, model.Refuse(model.CodeTokenRevoked, "join token %s was revoked", id).WithHint("%s", anotherToken)
	}
	return token, nil
}

func (c *TokenCreate) apply(s *State) error {
	if refusal := c.check(); refusal != nil {
		return refusal
	}
	if s.JoinTokens.Has(c.ID) {
		return model.Refuse(model.CodeConflict, "there is a join token %s already", c.ID).WithHint("make another one")
	}
	overdue := s.overdueTokens(s.Now)
	if kept := s.JoinTokens.Len() - len(overdue); kept >= maxJoinTokens {
		return model.Refuse(model.CodeConflict, "there are %d join tokens already", kept).
			WithHint("tokens are dropped a day after they have ended: outspan token revoke ID ends one")
	}
	for _, id := range overdue {
		s.delJoinToken(id)
	}
	s.putJoinToken(&JoinToken{ID: c.ID, Role: c.Role, Verifier: c.Verifier, Expires: s.Now.Add(c.TTL), Uses: c.Uses,
		NodeName: c.NodeName, Labels: c.Labels, Creator: s.entry.actor, CreatedIndex: s.Index})
	s.touch("tokens")
	data := map[string]string{"uses": fmt.Sprint(c.Uses), "ttl": c.TTL.String()}
	if c.NodeName != "" {
		data["node_name"] = c.NodeName
	}
	s.emit(Event{Type: model.EventTokenCreated, Subject: "token/" + string(c.ID), After: c.Role, Data: data})
	return nil
}

func (c *TokenCreate) check() *model.Error {
	switch {
	case !c.ID.Valid():
		return model.Refuse(model.CodeInvalid, "%q is no id of a join token", model.ClipText(string(c.ID), 100)).
			WithHint("it has 12 lower case letters and digits")
	case c.Role != string(model.SubjectServer) && c.Role != string(model.SubjectAgent):
		return model.Refuse(model.CodeInvalid, "a join token is for a server or an agent, not for %q",
			model.ClipText(c.Role, 100)).
			WithHint("give --role server or --role agent")
	case len(c.Verifier) != sha256.Size:
		return model.Refuse(model.CodeInvalid, "the verifier of join token %s has %d bytes, not %d", c.ID, len(c.Verifier),
			sha256.Size)
	case c.TTL < model.Second || c.TTL > maxTokenTTL:
		return model.Refuse(model.CodeInvalid, "a join token lasts 1s to %s, not %s", maxTokenTTL, c.TTL).
			WithHint("give another --ttl")
	case c.Uses < 1 || c.Uses > maxTokenUses:
		return model.Refuse(model.CodeInvalid, "a join token has 1 to %d uses, not %d", maxTokenUses, c.Uses).
			WithHint("give another --uses")
	}
	if refusal := model.CheckGlob(c.NodeName); refusal != nil {
		return refusal
	}
	return model.CheckLabels(c.Labels)
}

func (c *TokenRevoke) apply(s *State) error {
	t, ok := s.JoinTokens.Get(c.ID)
	if !ok {
		return model.NoSuch("token", model.ClipText(string(c.ID), 100), nil)
	}
	t.revoke(s)
	return nil
}

// revoke revokes the join token, unless it is revoked already.
func (t *JoinToken) revoke(s *State) {
	if t.RevokedIndex != 0 {
		return
	}
	next := *t
	next.RevokedIndex = s.Index
	if next.Ended == 0 {
		next.Ended = max(s.Now, 1)
	}
	s.putJoinToken(&next)
	s.touch("tokens")
	s.emit(Event{Type: model.EventTokenRevoked, Subject: "token/" + string(t.ID), Before: t.Role, After: "revoked"})
}
