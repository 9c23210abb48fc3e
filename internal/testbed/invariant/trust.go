package invariant

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// admissions checks S19 with the entry's commands, one after the other. An admission spends a use of a token that is
// neither revoked nor expired. A revoked name returns only by a token that is younger than its revocation, and with
// another key. A renewal shows a key that counts.
func (j *Judge) admissions(f *fsm.Findings, s *Step) {
	a := &admission{f: f, s: s, rows: map[model.Subject]fsm.TrustMember{}, spent: map[model.TokenID]int{}}
	var group []fsm.Command
	s.taken(func(of []fsm.Command, command fsm.Command) {
		if len(group) == 0 || len(of) == 0 || &group[0] != &of[0] {
			group, a.paid = of, nil
		}
		switch one := command.(type) {
		case *fsm.MemberAdmit:
			a.admit(one)
		case *fsm.MemberRenew:
			a.renew(one)
		case *fsm.MemberRevoke:
			if row := a.row(one.Subject); row.RevokedIndex == 0 {
				row.RevokedIndex = s.Index
				a.rows[one.Subject] = row
			}
		}
	})
	for _, id := range slices.Sorted(maps.Keys(a.spent)) {
		n := a.spent[id]
		before, _ := s.Before.JoinTokens.Get(id)
		after, ok := s.After.JoinTokens.Get(id)
		used := 0
		if before != nil {
			used = before.Used
		}
		if !ok || after.Used-used < n {
			f.Add(fsm.S19, "join token %s admitted %d members, and its row went from %+v to %+v", id, n, before, after)
		}
	}
}

// admission follows the commands of one entry.
type admission struct {
	f     *fsm.Findings
	s     *Step
	rows  map[model.Subject]fsm.TrustMember // of members that the entry changed so far
	spent map[model.TokenID]int             // uses that the entry spent so far
	paid  *fsm.MemberAdmit                  // the last admission of the group that spent a use
}

// row returns the row of a member as it is before the next command. It is zero if there is none.
func (a *admission) row(who model.Subject) fsm.TrustMember {
	if row, ok := a.rows[who]; ok {
		return row
	}
	if row, ok := a.s.Before.TrustMemberOf(who); ok {
		return *row
	}
	return fsm.TrustMember{Subject: who}
}

func (a *admission) admit(c *fsm.MemberAdmit) {
	row := a.row(c.Subject)
	if row.RevokedIndex == 0 && bytes.Equal(row.Key, c.Key) && row.Token == c.Token {
		return // a repeated admission
	}
	with := model.Subject{Kind: model.SubjectServer, Name: c.Subject.Name}
	if c.Subject.Kind != model.SubjectAgent || a.paid == nil || a.paid.Subject != with || a.paid.Token != c.Token {
		a.spent[c.Token]++
		a.paid = c
	}
	token, ok := a.s.Before.JoinTokens.Get(c.Token)
	if !ok {
		token, ok = a.s.After.JoinTokens.Get(c.Token) // made by this entry
	}
	switch {
	case !ok:
		a.f.Add(fsm.S19, "%s was admitted by the token %s, which does not exist", c.Subject, c.Token)
	case token.RevokedIndex != 0 && token.RevokedIndex < a.s.Index:
		a.f.Add(fsm.S19, "%s was admitted by the token %s, which was revoked at index %d", c.Subject, c.Token,
			token.RevokedIndex)
	case a.s.After.Now >= token.Expires:
		a.f.Add(fsm.S19, "%s was admitted at %d by the token %s, which expired at %d", c.Subject, a.s.After.Now, c.Token,
			token.Expires)
	case row.RevokedIndex != 0 && token.CreatedIndex <= row.RevokedIndex:
		a.f.Add(fsm.S19, "%s was revoked at index %d, and admitted by the token %s of index %d", c.Subject,
			row.RevokedIndex, c.Token, token.CreatedIndex)
	case row.RevokedIndex != 0 && has(&row, c.Key):
		a.f.Add(fsm.S19, "%s was revoked at index %d, and admitted with the same key", c.Subject, row.RevokedIndex)
	case row.RevokedIndex == 0 && len(row.Key) > 0 && !bytes.Equal(row.Key, c.Key):
		a.f.Add(fsm.S19, "%s was admitted with another key than that of the member of this name", c.Subject)
	}
	a.rows[c.Subject] = fsm.TrustMember{Subject: c.Subject, Key: c.Key, Token: c.Token}
}

func (a *admission) renew(c *fsm.MemberRenew) {
	row := a.row(c.Subject)
	switch {
	case row.RevokedIndex != 0:
		a.f.Add(fsm.S19, "%s was revoked at index %d, and renewed its certificate", c.Subject, row.RevokedIndex)
	case len(row.Key) == 0 && c.Subject.Kind != model.SubjectServer:
		a.f.Add(fsm.S19, "%s is no member, and renewed its certificate", c.Subject)
	case len(row.Key) > 0 && !row.AnyKey && !has(&row, c.Old):
		a.f.Add(fsm.S19, "%s renewed its certificate with a key that was replaced", c.Subject)
	}
	switch isNewest := bytes.Equal(c.Key, row.Key); {
	case isNewest && bytes.Equal(c.Old, row.Key):
		row.PreviousKey = nil
	case !isNewest:
		row.PreviousKey, row.Key = c.Old, c.Key
	}
	row.AnyKey = false
	a.rows[c.Subject] = row
}

func has(row *fsm.TrustMember, key []byte) bool {
	return len(key) > 0 && (bytes.Equal(key, row.Key) || bytes.Equal(key, row.PreviousKey))
}

// Resume checks a state from which a history goes on after entries that nobody has, as after a restore, against the
// last state before them: whoever was revoked, and whatever was spent, is so still (S9, S19).
func Resume(before, after *fsm.State) fsm.Findings {
	found, _ := errors.AsType[fsm.Findings](fsm.CheckTrust(*before, *after))
	return found
}
