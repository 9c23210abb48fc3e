package fsm

import (
	"bytes"
	"encoding/hex"
	"strings"

	"github.com/outspan/outspan/model"
)

// Bounds of newcomers.
const (
	maxNewcomers    = 1000
	maxNewcomerText = 300             // bytes of an address or a version
	newcomerKept    = 24 * model.Hour // how long a newcomer may wait
	approvalLasts   = model.Hour      // how long an approval admits the newcomer
	noneWaits       = "outspan token waiting shows which newcomers wait, and with which keys"
	askAgainBy      = "run the same outspan join again"
)

// Newcomer is a machine that asked to join by a good token while the setting join_approval was on. It waits until a
// person approves or rejects it. The decision is about its name, its keys and its token together: with another key or
// another token the machine waits again. The admission drops the row.
type Newcomer struct {
	Name    string        `cbor:"1,keyasint"`
	Server  []byte        `cbor:"2,keyasint,omitempty"` // hash of the key of its server; empty if it has none
	Agent   []byte        `cbor:"3,keyasint,omitempty"` // hash of the key of its agent; empty if it has none
	Token   model.TokenID `cbor:"4,keyasint"`
	Address string        `cbor:"5,keyasint,omitempty"` // from which it asked
	Version string        `cbor:"6,keyasint,omitempty"` // of its program, as it says
	Since   model.Time    `cbor:"7,keyasint"`
	Index   uint64        `cbor:"8,keyasint"` // of the entry with which it began to wait

	ApprovedIndex uint64      `cbor:"9,keyasint,omitempty"`
	RejectedIndex uint64      `cbor:"10,keyasint,omitempty"`
	DecidedAt     model.Time  `cbor:"11,keyasint,omitempty"`
	DecidedBy     model.Actor `cbor:"12,keyasint,omitempty"`
}

// NewcomerWait records a newcomer that has to be approved. It also drops newcomers that are over, and the first
// rejected one if there are too many. If the newcomer is recorded with the same keys and token, nothing changes. Codes:
// invalid; busy if join_approval is off; those of MemberAdmit; token_used if as many newcomers as the token has uses
// wait already; conflict if there are too many newcomers.
type NewcomerWait struct {
	Name     string        `cbor:"1,keyasint"`
	Server   []byte        `cbor:"2,keyasint,omitempty"`
	Agent    []byte        `cbor:"3,keyasint,omitempty"`
	Token    model.TokenID `cbor:"4,keyasint"`
	Verifier []byte        `cbor:"5,keyasint" debug:"secret"`
	Address  string        `cbor:"6,keyasint,omitempty"`
	Version  string        `cbor:"7,keyasint,omitempty"`
}

// NewcomerApprove approves a newcomer, so that it is admitted when it asks again within approvalLasts, even if the time
// of its token ends meanwhile. Codes: not_found; stale if the newcomer asked with another key or token since Index;
// conflict if it was approved or rejected already.
type NewcomerApprove struct {
	Newcomer model.Subject `cbor:"1,keyasint"` // its server, or its agent if it has no server
	Key      []byte        `cbor:"2,keyasint"` // hash of the key of Newcomer
	Index    uint64        `cbor:"3,keyasint"` // Newcomer.Index of the row that was looked at
}

// NewcomerReject rejects a newcomer, which then waits no longer. Codes: as of NewcomerApprove.
type NewcomerReject struct {
	Newcomer model.Subject `cbor:"1,keyasint"`
	Key      []byte        `cbor:"2,keyasint"`
	Index    uint64        `cbor:"3,keyasint"`
}

// Subject returns the server of the newcomer, or its agent if it has no server.
func (n *Newcomer) Subject() model.Subject {
	if len(n.Server) > 0 {
		return model.Subject{Kind: model.SubjectServer, Name: n.Name}
	}
	return model.Subject{Kind: model.SubjectAgent, Name: n.Name}
}

// Key returns the hash of the key of Subject.
func (n *Newcomer) Key() []byte {
	if len(n.Server) > 0 {
		return n.Server
	}
	return n.Agent
}

func (n *Newcomer) rowKey() string { return newcomerKey(n.Name, n.Key()) }

func newcomerKey(name string, key []byte) string { return name + "/" + hex.EncodeToString(key) }

// Over reports whether the newcomer neither waits nor may be admitted any more. Its token was spent or revoked; or its
// approval has lapsed; or nobody approved it in time, or before its token expired.
func (n *Newcomer) Over(s *State, now model.Time) bool {
	t, ok := s.JoinTokens.Get(n.Token)
	switch {
	case !ok || t.RevokedIndex != 0 || t.Used >= t.Uses:
		return true
	case n.ApprovedIndex != 0:
		return !n.admits(now)
	}
	return now >= t.Expires || now >= n.Since.Add(newcomerKept)
}

// admits reports whether the newcomer was approved, and not too long ago.
func (n *Newcomer) admits(now model.Time) bool {
	return n != nil && n.ApprovedIndex != 0 && now < n.DecidedAt.Add(approvalLasts)
}

// sameRequest reports whether two newcomers of one name have the same keys and token.
func (n *Newcomer) sameRequest(o *Newcomer) bool {
	return bytes.Equal(n.Server, o.Server) && bytes.Equal(n.Agent, o.Agent) && n.Token == o.Token
}

// NewcomersNamed returns the newcomers with a name, each with other keys. The rows are read-only.
func (s *trust) NewcomersNamed(name string) (all []*Newcomer) {
	for key, n := range s.Newcomers.From(name + "/") {
		if !strings.HasPrefix(key, name+"/") {
			break
		}
		all = append(all, n)
	}
	return all
}

// newcomer returns the row of the newcomer that asks for this admission, or nil.
func (c *MemberAdmit) newcomer(s *State) *Newcomer {
	for _, n := range s.NewcomersNamed(c.Subject.Name) {
		key := n.Agent
		if c.Subject.Kind == model.SubjectServer {
			key = n.Server
		}
		if n.Token == c.Token && len(key) > 0 && bytes.Equal(key, c.Key) {
			return n
		}
	}
	return nil
}

// hold refuses an admission that a person has to approve. old is the row of the name, or nil; a member that joins again
// with its own key is no newcomer. n is the row of the newcomer, or nil. Codes: approval_pending, approval_rejected.
func (c *MemberAdmit) hold(s *State, old *TrustMember, n *Newcomer) *model.Error {
	switch {
	case !s.Settings.JoinApproval || n.admits(s.Now):
		return nil
	case old != nil && old.RevokedIndex == 0 && bytes.Equal(old.Key, c.Key):
		return nil
	case n == nil:
		n = &Newcomer{Name: c.Subject.Name, Agent: c.Key}
		if c.Subject.Kind == model.SubjectServer {
			n.Server = c.Key
		}
	}
	who, key := n.Subject(), model.Fingerprint(n.Key())
	if n.RejectedIndex != 0 {
		return model.Refuse(model.CodeApprovalRejected, "%s with the key %s was rejected by %s", who, key, n.DecidedBy).
			WithHint("ask who runs the cluster; to ask again, remove the key files on this machine: that makes new keys")
	}
	return model.Refuse(model.CodeApprovalPending, "%s with the key %s waits until a person approves it", who, key).
		WithHint("compare the key, then on a server: outspan %s approve %s", commandOf(who.Kind), who.Name)
}

// dropNewcomers removes the rows for which drop returns true.
func (s *State) dropNewcomers(drop func(*Newcomer) bool) {
	var rows []*Newcomer
	for _, n := range s.Newcomers.All() {
		if drop(n) {
			rows = append(rows, n)
		}
	}
	for _, n := range rows {
		s.delNewcomer(n)
	}
	if len(rows) > 0 {
		s.touch("newcomers")
	}
}

// arrived drops the newcomers of a name once its last member is admitted: others can't have the name.
func (n *Newcomer) arrived(s *State, who model.Subject) {
	if n != nil && (who.Kind == model.SubjectAgent || len(n.Agent) == 0) {
		s.dropNewcomers(func(o *Newcomer) bool { return o.Name == n.Name })
	}
}

func (c *NewcomerWait) apply(s *State) error {
	if len(c.Address) > maxNewcomerText || len(c.Version) > maxNewcomerText {
		return model.Refuse(model.CodeInvalid, "the address or the version of %s has more than %d bytes",
			model.ClipText(c.Name, 100), maxNewcomerText)
	}
	if !s.Settings.JoinApproval {
		return model.Refuse(model.CodeBusy, "newcomers need no approval any more").WithHint("try again in a moment")
	}
	if refusal := c.mayJoin(s); refusal != nil {
		return refusal
	}
	next := &Newcomer{Name: c.Name, Server: c.Server, Agent: c.Agent, Token: c.Token, Address: c.Address,
		Version: c.Version, Since: s.Now, Index: s.Index}
	if old, ok := s.Newcomers.Get(next.rowKey()); ok && !old.Over(s, s.Now) && old.sameRequest(next) {
		return nil
	}
	drop, refusal := s.roomForNewcomer(next)
	if refusal != nil {
		return refusal
	}
	for _, n := range drop {
		s.delNewcomer(n)
	}
	s.putNewcomer(next)
	s.touch("newcomers")
	data := map[string]string{"key": model.Fingerprint(next.Key()), "token": string(c.Token)}
	if c.Address != "" {
		data["address"] = c.Address
	}
	s.emit(Event{Type: model.EventNewcomerWaits, Subject: "member/" + next.Subject().String(), After: "waits", Data: data})
	return nil
}

// mayJoin refuses a newcomer that would be refused once it is approved.
func (c *NewcomerWait) mayJoin(s *State) *model.Error {
	first := true
	for _, one := range [...]struct {
		kind model.SubjectKind
		key  []byte
	}{{model.SubjectServer, c.Server}, {model.SubjectAgent, c.Agent}} {
		if len(one.key) == 0 {
			continue
		}
		admit := &MemberAdmit{Subject: model.Subject{Kind: one.kind, Name: c.Name}, Key: one.key, NotAfter: 1,
			Token: c.Token, Verifier: c.Verifier}
		token, refusal := admit.mayUse(s)
		if refusal != nil {
			return refusal
		}
		old, _ := s.TrustMemberOf(admit.Subject)
		if refusal := admit.mayJoin(s, token, old, !first, false); refusal != nil {
			return refusal
		}
		first = false
	}
	if first {
		return model.Refuse(model.CodeInvalid, "the newcomer %s has no key", model.ClipText(c.Name, 100))
	}
	return nil
}

// roomForNewcomer returns the rows to drop when a newcomer begins to wait. Codes: token_used, conflict.
func (s *State) roomForNewcomer(next *Newcomer) (drop []*Newcomer, refusal *model.Error) {
	kept, byToken := 0, 0
	var rejected *Newcomer // the one that began to wait first
	for key, n := range s.Newcomers.All() {
		switch {
		case n.Over(s, s.Now):
			drop = append(drop, n)
			continue
		case key == next.rowKey():
			continue
		case n.RejectedIndex == 0 && n.Token == next.Token:
			byToken++
		case n.RejectedIndex != 0 && (rejected == nil || n.Index < rejected.Index):
			rejected = n
		}
		kept++
	}
	token, _ := s.JoinTokens.Get(next.Token)
	switch {
	case byToken >= token.Uses-token.Used:
		return nil, model.Refuse(model.CodeTokenUsed, "join token %s has %d uses left, and %d newcomers wait by it already",
			token.ID, token.Uses-token.Used, byToken).
			WithHint("approve or reject those: outspan token waiting; or %s", anotherToken)
	case kept >= maxNewcomers && rejected == nil:
		return nil, model.Refuse(model.CodeConflict, "%d newcomers wait already", kept).
			WithHint("approve or reject them: outspan token waiting")
	case kept >= maxNewcomers:
		drop = append(drop, rejected)
	}
	return drop, nil
}

func (c *NewcomerApprove) apply(s *State) error {
	n, refusal := s.undecided(c.Newcomer, c.Key, c.Index)
	if refusal != nil {
		return refusal
	}
	next := *n
	next.ApprovedIndex = s.Index
	s.decide(&next, model.EventNewcomerApproved, "approved")
	return nil
}

func (c *NewcomerReject) apply(s *State) error {
	n, refusal := s.undecided(c.Newcomer, c.Key, c.Index)
	if refusal != nil {
		return refusal
	}
	next := *n
	next.RejectedIndex = s.Index
	s.decide(&next, model.EventNewcomerRejected, "rejected")
	return nil
}

// undecided returns the row of a newcomer that waits. Codes: not_found, stale, conflict.
func (s *State) undecided(who model.Subject, key []byte, index uint64) (*Newcomer, *model.Error) {
	n, ok := s.Newcomers.Get(newcomerKey(who.Name, key))
	switch {
	case !ok || n.Subject() != who || n.Over(s, s.Now):
		return nil, model.Refuse(model.CodeNotFound, "no newcomer %s with the key %s waits",
			model.ClipText(who.String(), 100), model.Fingerprint(key)).WithHint("%s; if it gave up there: %s", noneWaits,
			askAgainBy)
	case n.Index != index:
		return nil, model.Refuse(model.CodeStale, "%s asked again with another key or token", who).WithHint("%s", noneWaits)
	case n.ApprovedIndex != 0:
		return nil, model.Refuse(model.CodeConflict, "%s was approved already by %s", who, n.DecidedBy).
			WithHint("it joins when it asks again: %s; to keep it out: outspan token revoke %s", askAgainBy, n.Token)
	case n.RejectedIndex != 0:
		return nil, model.Refuse(model.CodeConflict, "%s was rejected already by %s", who, n.DecidedBy).
			WithHint("to let it join, remove the key files on that machine and run outspan join again: that makes new keys")
	}
	return n, nil
}

// decide stores the decision about a newcomer.
func (s *State) decide(n *Newcomer, what model.EventType, after string) {
	n.DecidedAt, n.DecidedBy = s.Now, s.entry.actor
	s.putNewcomer(n)
	s.touch("newcomers")
	s.emit(Event{Type: what, Subject: "member/" + n.Subject().String(), Before: "waits", After: after,
		Data: map[string]string{"key": model.Fingerprint(n.Key()), "token": string(n.Token)}})
}
