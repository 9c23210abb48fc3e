package fsm

import (
	"crypto/sha256"
	"slices"
	"strings"
	"unicode"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// Bounds of access tokens.
const (
	// maxScriptTokens bounds the tokens that count. Logins have a bound of their own, so neither keeps the other out.
	maxScriptTokens = 2000
	maxOfCreator    = 1000 // that count, of one creator
	maxAccessTTL    = 366 * 24 * model.Hour
	maxTokenRoles   = 32
	maxTokenGroups  = 256
	maxTokenGroup   = 256      // bytes of the name of a group
	maxGroupBytes   = 16 << 10 // of all groups of a token
	maxTokenPerson  = 256      // bytes
	// accessTokenKept is how long the row of a token that ended is kept, if there is room.
	accessTokenKept   = 24 * model.Hour
	maxAccessRows     = maxScriptTokens + maxLogins + maxTokenRows // rows, with those of tokens that ended
	maxTokenRows      = 1000
	unixMs            = 1_000_000 // nanoseconds of a millisecond
	anotherAccessName = "choose another name, or first: outspan auth token revoke %s"
)

// AccessToken lets its holder call the API without a certificate. The state has only a hash of its secret. A token
// counts until it ends or is revoked. A token that ended by time may count again if the wall clock goes back.
type AccessToken struct {
	ID      model.TokenID     `cbor:"1,keyasint"`
	Name    string            `cbor:"2,keyasint"` // unique; a new token replaces one of its name that ended
	Subject model.Subject     `cbor:"3,keyasint"` // who the holder is: token:NAME
	Hash    []byte            `cbor:"4,keyasint" debug:"secret"`
	Roles   []rights.RoleName `cbor:"5,keyasint,omitempty"` // that the token itself gives; bindings may give more
	Groups  []string          `cbor:"6,keyasint,omitempty"` // to which the holder belongs
	Person  string            `cbor:"7,keyasint,omitempty"` // a readable name of the holder, if it is a person
	Ends    int64             `cbor:"8,keyasint"`           // Unix ns: the first moment at which the token does not count
	Creator model.Actor       `cbor:"9,keyasint,omitempty"`
	Index   uint64            `cbor:"10,keyasint"` // at which it was made
	// RevokedIndex is 0 unless the token was revoked. A revoked token never counts again.
	RevokedIndex uint64 `cbor:"11,keyasint,omitempty"`
}

// AccessTokenCreate makes an access token. Its creator is the actor of the entry. It also drops the rows of tokens that
// ended: of those of the same name, of those that ended more than a day ago, and of all if there are too many rows.
// Codes: invalid; name_taken; conflict if the id is in use, or if there are too many tokens.
type AccessTokenCreate struct {
	ID      model.TokenID     `cbor:"1,keyasint"`
	Name    string            `cbor:"2,keyasint"`
	Subject model.Subject     `cbor:"3,keyasint"`
	Hash    []byte            `cbor:"4,keyasint" debug:"secret"`
	TTL     model.Duration    `cbor:"5,keyasint"` // from the wall clock of the entry; 1 s to 366 days
	Roles   []rights.RoleName `cbor:"6,keyasint,omitempty"`
	Groups  []string          `cbor:"7,keyasint,omitempty"`
	Person  string            `cbor:"8,keyasint,omitempty"`
}

// AccessTokenRevoke revokes an access token for ever. Writes of other callers that were judged before are refused as
// stale, as after every change of rights. If the token is revoked already, nothing changes. Code: not_found.
type AccessTokenRevoke struct {
	ID model.TokenID `cbor:"1,keyasint"`
}

// CountsAt reports whether the token counts at a moment of the wall clock, in Unix ns.
func (t *AccessToken) CountsAt(now int64) bool { return t.RevokedIndex == 0 && now < t.Ends }

// counts reports whether the token counts by the wall clock of the state.
func (t *AccessToken) counts(s *State) bool { return t.CountsAt(s.Wall * unixMs) }

// overdue reports whether the row of the token may be dropped although there is room.
func (t *AccessToken) overdue(s *State) bool { return (s.Wall-int64(accessTokenKept))*unixMs >= t.Ends }

// AccessTokensOf returns the tokens of a subject that count at a moment in Unix ns, sorted by id. The rows are
// read-only. It looks at every token.
func (s *trust) AccessTokensOf(who model.Subject, now int64) (all []*AccessToken) {
	for _, t := range s.AccessTokens.All() {
		if t.Subject == who && t.CountsAt(now) {
			all = append(all, t)
		}
	}
	return all
}

func (c *AccessTokenCreate) apply(s *State) error {
	row := &AccessToken{ID: c.ID, Name: c.Name, Subject: c.Subject, Hash: c.Hash, Roles: c.Roles, Groups: c.Groups,
		Person: c.Person, Ends: (s.Wall + int64(c.TTL)) * unixMs, Creator: s.entry.actor, Index: s.Index}
	if refusal := row.check(); refusal != nil {
		return refusal
	}
	if row.IsLogin() {
		return model.Refuse(model.CodeInvalid, "an access token of %s needs a login", c.Name)
	}
	if c.TTL < model.Second || c.TTL > maxAccessTTL {
		return model.Refuse(model.CodeInvalid, "an access token lasts 1s to %s, not %s", maxAccessTTL, c.TTL).
			WithHint("give another --ttl")
	}
	return s.addAccessToken(row, "created")
}

// addAccessToken stores a new token, and drops rows to make room for it. The event says what happened. Codes:
// name_taken, conflict.
func (s *State) addAccessToken(row *AccessToken, what string) error {
	drop, refusal := s.roomForAccessToken(row)
	if refusal != nil {
		return refusal
	}
	for _, id := range drop {
		s.delAccessToken(id)
	}
	s.putAccessToken(row)
	s.touch("access")
	s.emit(Event{Type: model.EventRights, Subject: row.object(), After: what})
	return nil
}

// object names the token as events do.
func (t *AccessToken) object() string { return "access/" + t.Name }

// roomForAccessToken returns the rows to drop before a token is made. Codes: name_taken, conflict.
func (s *State) roomForAccessToken(next *AccessToken) (drop []model.TokenID, _ *model.Error) {
	if s.AccessTokens.Has(next.ID) {
		return nil, model.Refuse(model.CodeConflict, "there is an access token %s already", next.ID).
			WithHint("make another one")
	}
	count, own, most := 0, 0, maxScriptTokens
	if next.IsLogin() {
		most = maxLogins
	}
	var ended []model.TokenID
	for id, t := range s.AccessTokens.All() {
		switch {
		case !t.counts(s):
			ended = append(ended, id)
			if t.overdue(s) || t.Name == next.Name {
				drop = append(drop, id)
			}
			continue
		case t.Name == next.Name:
			return nil, model.Refuse(model.CodeNameTaken, "there is an access token with the name %s already", t.Name).
				WithHint(anotherAccessName, t.Name)
		case t.IsLogin() != next.IsLogin():
			continue
		case t.Creator == next.Creator:
			own++
		}
		count++
	}
	switch {
	case count >= most:
		return nil, model.Refuse(model.CodeConflict, "there are %d access tokens of this kind already", count).
			WithHint("revoke those that nobody needs: outspan auth token ls")
	case own >= maxOfCreator:
		return nil, model.Refuse(model.CodeConflict, "%s has made %d access tokens that count already", next.Creator, own).
			WithHint("revoke those that nobody needs: outspan auth token ls")
	case s.AccessTokens.Len()-len(drop) >= maxAccessRows:
		return ended, nil
	}
	return drop, nil
}

// check refuses a row that can't be stored. Code: invalid.
func (t *AccessToken) check() *model.Error {
	switch {
	case !t.ID.Valid():
		return model.Refuse(model.CodeInvalid, "%q is no id of an access token", model.ClipText(string(t.ID), 100)).
			WithHint("it has 12 lower case letters and digits")
	case len(t.Hash) != sha256.Size:
		return model.Refuse(model.CodeInvalid, "the hash of access token %s has %d bytes, not %d", t.ID, len(t.Hash),
			sha256.Size)
	case !validTokenName(t.Name):
		return model.Refuse(model.CodeInvalid, "an access token can't have the name %q", model.ClipText(t.Name, 100)).
			WithHint("use 1 to 64 letters, digits, -, _, . and @, and begin with a letter or digit")
	case !t.fitsSubject():
		return model.Refuse(model.CodeInvalid, "the access token %s can't be for %q", t.Name,
			model.ClipText(t.Subject.String(), 100))
	case len(t.Roles) > maxTokenRoles:
		return model.Refuse(model.CodeInvalid, "the access token %s has %d roles", t.Name, len(t.Roles)).
			WithHint("give at most %d; make a role that allows all of it: outspan role set FILE", maxTokenRoles)
	case len(t.Groups) > maxTokenGroups:
		return model.Refuse(model.CodeInvalid, "the access token %s has %d groups", t.Name, len(t.Groups)).
			WithHint("give at most %d", maxTokenGroups)
	case len(t.Person) > maxTokenPerson || strings.ContainsFunc(t.Person, unicode.IsControl):
		return model.Refuse(model.CodeInvalid, "%q is too long, or has control characters", model.ClipText(t.Person, 100))
	}
	if n := len(strings.Join(t.Groups, "")); n > maxGroupBytes {
		return model.Refuse(model.CodeInvalid, "the groups of access token %s have %d bytes", t.Name, n).
			WithHint("the names may have %d bytes together; let the provider send fewer groups", maxGroupBytes)
	}
	for _, role := range t.Roles {
		b := rights.Binding{Role: role, To: t.Subject.String()}
		if refusal := b.CheckShape(); refusal != nil {
			return refusal
		}
	}
	if i := slices.IndexFunc(t.Groups, func(g string) bool {
		return g == "" || len(g) > maxTokenGroup || strings.ContainsFunc(g, unicode.IsControl)
	}); i >= 0 {
		return model.Refuse(model.CodeInvalid, "%q can't be a group", model.ClipText(t.Groups[i], 100)).
			WithHint("a group has 1 to %d bytes and no control characters", maxTokenGroup)
	}
	return nil
}

func validTokenName(name string) bool {
	return len(name) > 0 && len(name) <= 64 && personByte(name[0], "") &&
		!strings.ContainsFunc(name, func(r rune) bool { return r > '~' || !personByte(byte(r), "-_.@") })
}

func (c *AccessTokenRevoke) apply(s *State) error {
	t, ok := s.AccessTokens.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no access token %q", model.ClipText(string(c.ID), 100)).
			WithHint("list them with: outspan auth token ls")
	case t.RevokedIndex != 0:
		return nil
	}
	s.beginRights()
	s.putAccessToken(t.revoked(s))
	s.touch("access")
	s.changedRights(t.object(), "created", "revoked")
	return nil
}

// revoked returns the row of the token once it is revoked. The row is kept a day longer, to say so to its holder.
func (t *AccessToken) revoked(s *State) *AccessToken {
	next := *t
	next.RevokedIndex, next.Ends = s.Index, min(t.Ends, s.Wall*unixMs)
	return &next
}

// voidAccessTokens revokes all access tokens after a recovery: the state may have lost the revocation of any of them.
func (s *State) voidAccessTokens() {
	var revoked []*AccessToken
	for _, t := range s.AccessTokens.All() {
		if t.RevokedIndex == 0 {
			revoked = append(revoked, t.revoked(s))
		}
	}
	if len(revoked) == 0 {
		return
	}
	s.beginRights()
	for _, t := range revoked {
		s.putAccessToken(t)
	}
	s.RightsIndex = s.Index
	s.touch("access", "rights")
}

// accessTokens checks the rows of access tokens.
func (c *checker) accessTokens() {
	s, names := c.s, map[string]model.TokenID{}
	c.want(s.AccessTokens.Len() <= maxAccessRows, "there are %d rows of access tokens", s.AccessTokens.Len())
	for id, t := range s.AccessTokens.All() {
		refusal := t.check()
		c.want(t.ID == id && refusal == nil, "access token %s: its row names %s: %v", id, t.ID, refusal)
		c.want(t.Index <= s.Index && t.RevokedIndex <= s.Index && (t.RevokedIndex == 0 || t.RevokedIndex <= s.RightsIndex),
			"access token %s: made at index %d, revoked at %d, the rights are of %d", id, t.Index, t.RevokedIndex, s.RightsIndex)
		c.want(t.Ends > 0 || t.RevokedIndex != 0, "access token %s ends at %d", id, t.Ends)
		c.want(names[t.Name] == "", "access tokens %s and %s have the name %s", names[t.Name], id, t.Name)
		names[t.Name] = id
	}
}

// accessTokenSteps checks that no access token comes back, that none that counts is dropped, and that none changes.
func (c *checker) accessTokenSteps(before *State) {
	for id, row := range differences(before.AccessTokens, c.s.AccessTokens) {
		a, b := row.before, row.after
		switch {
		case !row.had:
			c.holds(S19, b.Index > before.Index, "access token %s came back", id)
		case !row.has:
			c.holds(S19, !a.counts(c.s), "access token %s was dropped", id)
		default:
			c.holds(S19, a.RevokedIndex == 0 || a.RevokedIndex == b.RevokedIndex,
				"access token %s was revoked at index %d, and now at %d", id, a.RevokedIndex, b.RevokedIndex)
			c.holds(S19, b.Ends <= a.Ends && (b.RevokedIndex != 0 || b.Ends == a.Ends), "access token %s ended at %d, now at %d",
				id, a.Ends, b.Ends)
			c.holds(S19, a.Subject == b.Subject && a.Name == b.Name && slices.Equal(a.Hash, b.Hash) &&
				slices.Equal(a.Roles, b.Roles) && slices.Equal(a.Groups, b.Groups) && a.Index == b.Index,
				"access token %s changed what it is", id)
		}
	}
}
