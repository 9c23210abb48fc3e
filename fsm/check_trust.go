package fsm

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/outspan/outspan/model"
)

// trustKeys checks the rows of keys: their bounds, at most one active key of each kind, and that the data key that
// encrypts another key exists.
func (c *checker) trustKeys() {
	s := c.s
	c.want(s.TrustKeys.Len() <= maxTrustKeys, "there are %d keys", s.TrustKeys.Len())
	active := map[model.KeyKind]model.KeyName{}
	for name, k := range s.TrustKeys.All() {
		kind := name.Kind()
		c.want(k.Name == name && kind.Valid(), "key %s: its row names %s", name, k.Name)
		c.want(k.Phase.Valid() && k.Version >= 1, "key %s: phase %q, version %d", name, k.Phase, k.Version)
		c.want(len(k.Sealed) > 0 && len(k.Sealed) <= maxSealed && len(k.Public) <= maxSealed && len(k.Under) <= maxUnder,
			"key %s: %d encrypted bytes, %d public ones, under %q", name, len(k.Sealed), len(k.Public), k.Under)
		c.want((kind == model.KeyCA) == (len(k.Public) > 0), "key %s has a certificate of %d bytes", name, len(k.Public))
		c.want(validPassed(k.Passed) && k.Grace >= 0 && k.Grace <= maxKeyGrace &&
			(kind == model.KeyCA || len(k.Passed) == 0 && k.Grace == 0),
			"key %s: %d members are left behind, the grace is %s", name, len(k.Passed), k.Grace)
		c.want(k.CreatedIndex <= s.Index && k.At <= s.Now, "key %s: created at index %d, in its phase since %d", name,
			k.CreatedIndex, k.At)
		c.want(k.Exported <= max(s.Now, 1) && (k.Exported == 0 || kind == model.KeyData), "key %s: exported at %d", name,
			k.Exported)
		if kind == model.KeyData {
			c.want(k.Under != "", "key %s is encrypted under nothing", name)
		} else {
			under := model.KeyName(k.Under)
			c.want(under.Kind() == model.KeyData && s.TrustKeys.Has(under), "key %s: the data key %q is missing", name, under)
		}
		if k.Phase == model.KeyActive {
			c.want(active[kind] == "", "keys %s and %s are both active", active[kind], name)
			active[kind] = name
		}
	}
}

func (c *checker) joinTokens() {
	s := c.s
	c.want(s.JoinTokens.Len() <= maxJoinTokens, "there are %d join tokens", s.JoinTokens.Len())
	for id, t := range s.JoinTokens.All() {
		c.want(t.ID == id && id.Valid(), "join token %s: its row names %s", id, t.ID)
		c.want(oneOf(model.SubjectKind(t.Role), model.SubjectServer, model.SubjectAgent), "join token %s has the role %q", id,
			t.Role)
		c.want(len(t.Verifier) == sha256.Size, "join token %s: its verifier has %d bytes", id, len(t.Verifier))
		c.holds(S19, t.Used <= t.Uses, "join token %s admitted %d members, it has %d uses", id, t.Used, t.Uses)
		c.want(t.Used >= 0 && t.Uses <= maxTokenUses, "join token %s: %d of %d uses", id, t.Used, t.Uses)
		c.want((t.Ended != 0) == (t.RevokedIndex != 0 || t.Used == t.Uses) && t.Ended <= max(s.Now, 1),
			"join token %s: %d of %d uses, revoked at index %d, ended at %d", id, t.Used, t.Uses, t.RevokedIndex, t.Ended)
		c.want(t.CreatedIndex <= s.Index && t.RevokedIndex <= s.Index, "join token %s: created at index %d, revoked at %d",
			id, t.CreatedIndex, t.RevokedIndex)
		c.want(model.CheckGlob(t.NodeName) == nil && model.CheckLabels(t.Labels) == nil,
			"join token %s: names %q, labels %v", id, t.NodeName, t.Labels)
	}
}

func (c *checker) trustMembers() {
	s := c.s
	c.want(s.TrustMembers.Len() <= maxMembers, "there are %d members", s.TrustMembers.Len())
	for who, m := range s.TrustMembers.All() {
		refusal := m.check()
		c.want(m.Subject.String() == who && refusal == nil, "member %s: its row names %s: %v", who, m.Subject, refusal)
		c.want(len(m.PreviousKey) == 0 || len(m.PreviousKey) == sha256.Size && !bytes.Equal(m.PreviousKey, m.Key),
			"member %s: its previous key has %d bytes, or is its newest one", who, len(m.PreviousKey))
		c.want(m.Token == "" || m.Token.Valid(), "member %s was admitted by %q", who, m.Token) // none: see MemberFound
		c.want(len(m.Earlier) <= maxEarlier && !slices.ContainsFunc(m.Earlier, func(id model.TokenID) bool {
			return !id.Valid() || id == m.Token
		}), "member %s was admitted before by %v", who, m.Earlier)
		c.want(m.IssuedIndex <= s.Index && m.RevokedIndex <= s.Index, "member %s: issued at index %d, revoked at %d", who,
			m.IssuedIndex, m.RevokedIndex)
		c.want(m.RevokedIndex == 0 || m.RevokedIndex >= m.IssuedIndex, "member %s was revoked at index %d and issued at %d",
			who, m.RevokedIndex, m.IssuedIndex)
		c.want(m.VoidBefore <= s.MomentNumber() && (m.RevokedIndex == 0 || m.VoidBefore != 0),
			"member %s was revoked at index %d, and its certificates before %d are void", who, m.RevokedIndex, m.VoidBefore)
		c.want(m.RevokedIndex != 0 || m.Reason == "", "member %s is not revoked, for %q", who, m.Reason)
		c.want(!m.AnyKey || m.Subject.Kind == model.SubjectAgent && m.RevokedIndex == 0,
			"member %s has no pinned key, but is no agent or is revoked", who)
		c.want(validDigest(m.Roots) && validDigest(m.Gossip), "member %s holds %x and %x", who, m.Roots, m.Gossip)
		c.want(m.CA == "" || m.CA.Kind() == model.KeyCA, "member %s has a certificate of %q", who, m.CA)
		c.want(model.CheckLabels(m.Labels) == nil, "member %s has the labels %v", who, m.Labels)
		c.want(len(m.Reason) <= maxRevokeReason, "member %s: its reason has %d bytes", who, len(m.Reason))
	}
}

func (c *checker) people() {
	s := c.s
	c.want(s.People.Len() <= maxPeople+1, "there are %d people", s.People.Len()) // one row more: everyone
	for name, p := range s.People.All() {
		c.want(p.Subject.Name == name && (name == everyone || checkPerson(p.Subject) == nil), "person %s: its row names %s",
			name, p.Subject)
		c.want(p.IssuedIndex <= s.Index && p.RevokedIndex <= s.Index && (p.IssuedIndex != 0 || p.RevokedIndex != 0),
			"person %s: issued at index %d, revoked at %d", name, p.IssuedIndex, p.RevokedIndex)
		c.want((p.IssuedIndex != 0) == (len(p.Key) == sha256.Size) && (p.IssuedIndex != 0) == (p.NotAfter > 0),
			"person %s: issued at index %d, its key has %d bytes, its certificate ends at %d", name, p.IssuedIndex, len(p.Key),
			p.NotAfter)
		c.want(p.VoidBefore <= s.MomentNumber() && (p.RevokedIndex == 0 || p.VoidBefore != 0),
			"person %s was revoked at index %d, and certificates before %d are void", name, p.RevokedIndex, p.VoidBefore)
		c.want(len(p.Reason) <= maxRevokeReason && (p.RevokedIndex != 0 || p.Reason == ""),
			"person %s: revoked at index %d, for a reason of %d bytes", name, p.RevokedIndex, len(p.Reason))
	}
}

func (c *checker) newcomers() {
	s := c.s
	c.want(s.Newcomers.Len() <= maxNewcomers, "there are %d newcomers", s.Newcomers.Len())
	for key, n := range s.Newcomers.All() {
		c.want(key == n.rowKey() && n.Token.Valid(), "newcomer %s: its row is of %s by token %q", key, n.rowKey(), n.Token)
		c.want(len(n.Server)+len(n.Agent) > 0 && len(n.Server)%sha256.Size == 0 && len(n.Agent)%sha256.Size == 0,
			"newcomer %s has keys of %d and %d bytes", key, len(n.Server), len(n.Agent))
		c.want(n.ApprovedIndex == 0 || n.RejectedIndex == 0, "newcomer %s was approved at index %d and rejected at %d", key,
			n.ApprovedIndex, n.RejectedIndex)
		c.want(max(n.Index, n.ApprovedIndex, n.RejectedIndex) <= s.Index && max(n.Since, n.DecidedAt) <= s.Now,
			"newcomer %s waits since index %d, and was decided about at index %d", key, n.Index,
			max(n.ApprovedIndex, n.RejectedIndex))
	}
}

// newcomerSteps checks that no newcomer and no decision comes back, and that a decision stays.
func (c *checker) newcomerSteps(before *State) {
	for key, row := range differences(before.Newcomers, c.s.Newcomers) {
		a, b := row.before, row.after
		switch {
		case !row.has:
		case !row.had || b.Index != a.Index:
			c.want(b.Index > before.Index, "newcomer %s of index %d came back", key, b.Index)
		default:
			c.want(a.ApprovedIndex+a.RejectedIndex == 0 || a.ApprovedIndex == b.ApprovedIndex &&
				a.RejectedIndex == b.RejectedIndex, "the decision about newcomer %s changed", key)
			c.want(a.sameRequest(b), "newcomer %s changed its keys or its token", key)
		}
	}
}

// CheckTrust compares the keys, join tokens, members, people, rights and access tokens of a state with those of a later
// state. A restore does not take them back, so the later state may be a restored one, for which CheckStep has no
// meaning. CheckTrust returns Findings with each difference that must never occur (S9, S19), or nil. A recovery begins
// a new history for CheckTrust too.
func CheckTrust(before, after State) error {
	c := &checker{rule: S19, s: &after}
	c.trustSteps(&before)
	return c.found.Err()
}

// check refuses a row that no member has. A server that had no row when it was revoked has neither a key nor an end. An
// agent that AgentsFound made a member has no key until it has shown one.
func (m *TrustMember) check() *model.Error {
	if m.Subject.Kind == model.SubjectServer && m.RevokedIndex != 0 && m.IssuedIndex == 0 && len(m.Key) == 0 &&
		m.NotAfter == 0 {
		return checkMember(m.Subject, 1)
	}
	if m.Subject.Kind == model.SubjectAgent && len(m.Key) == 0 && (m.AnyKey || m.RevokedIndex != 0) {
		return checkMember(m.Subject, m.NotAfter)
	}
	return checkMember(m.Subject, m.NotAfter, m.Key)
}

// trustSteps checks that no key returns to an earlier phase, that no join token gets back its uses or its validity, and
// that a revoked member returns only by a token.
func (c *checker) trustSteps(before *State) {
	eachChange(before.TrustKeys, c.s.TrustKeys, func(name model.KeyName, a, b *TrustKey) {
		if b.CreatedIndex > before.Index || a.same(b) { // a new key of the same name; or rows that were read from snapshots
			return
		}
		c.want(b.Version > a.Version && !b.Phase.Before(a.Phase) && b.CreatedIndex == a.CreatedIndex,
			"key %s: version %d became %d, %s became %s", name, a.Version, b.Version, a.Phase, b.Phase)
	})
	for name, row := range differences(before.TrustKeys, c.s.TrustKeys) {
		c.holds(S19, row.had || row.after.CreatedIndex > before.Index, "key %s came back", name)
	}
	eachChange(before.JoinTokens, c.s.JoinTokens, c.tokenStep)
	eachChange(before.TrustMembers, c.s.TrustMembers, c.memberStep)
	eachChange(before.People, c.s.People, c.personStep)
	for name, row := range differences(before.People, c.s.People) {
		c.holds(S19, row.has || row.before.VoidBefore == 0 && row.before.overdue(c.s.Wall), "person %s was dropped", name)
	}
	c.newcomerSteps(before)
	c.accessTokenSteps(before)
	c.holds(S19, c.s.RightsIndex >= before.RightsIndex, "the rights of index %d became those of %d", before.RightsIndex,
		c.s.RightsIndex)
	for id, row := range differences(before.JoinTokens, c.s.JoinTokens) {
		c.holds(S9, row.had || row.after.CreatedIndex > before.Index, "join token %s came back", id)
		c.want(row.has || row.before.overdue(c.s.Now), "join token %s was dropped before it was overdue", id)
	}
	for who, row := range differences(before.TrustMembers, c.s.TrustMembers) {
		c.want(row.has || row.before.Subject.Kind == model.SubjectAgent && c.s.TrustMembers.Len() == maxMembers &&
			(row.before.RevokedIndex != 0 || row.before.overdue(c.s.Wall)), "member %s was dropped", who)
	}
}

// same reports whether two rows have the same content.
func (k *TrustKey) same(o *TrustKey) bool {
	return k.Name == o.Name && k.Version == o.Version && k.Phase == o.Phase && k.Under == o.Under &&
		bytes.Equal(k.Sealed, o.Sealed) && bytes.Equal(k.Public, o.Public) && k.CreatedIndex == o.CreatedIndex &&
		k.At == o.At && k.Exported == o.Exported && slices.Equal(k.Passed, o.Passed) && k.Grace == o.Grace &&
		k.ActiveIndex == o.ActiveIndex
}

func (c *checker) tokenStep(id model.TokenID, a, b *JoinToken) {
	if b.CreatedIndex > a.CreatedIndex {
		c.want(a.overdue(c.s.Now), "join token %s began anew before it was overdue", id)
		return
	}
	c.want(b.Used >= a.Used, "join token %s: %d of its uses were spent, and now %d", id, a.Used, b.Used)
	c.want(a.RevokedIndex == 0 || b.RevokedIndex == a.RevokedIndex, "join token %s was revoked at index %d, and now at %d",
		id, a.RevokedIndex, b.RevokedIndex)
	c.want(a.Role == b.Role && a.Expires == b.Expires && a.Uses == b.Uses && a.NodeName == b.NodeName &&
		bytes.Equal(a.Verifier, b.Verifier), "join token %s changed what it is", id)
}

func (c *checker) memberStep(who string, a, b *TrustMember) {
	c.want(b.VoidBefore >= a.VoidBefore, "member %s: certificates before %d were void, now those before %d", who,
		a.VoidBefore, b.VoidBefore)
	if a.RevokedIndex == 0 || b.IssuedIndex > a.RevokedIndex && c.spent(b.Token, a.RevokedIndex) {
		return
	}
	c.want(b.RevokedIndex == a.RevokedIndex && bytes.Equal(a.Key, b.Key),
		"member %s was revoked at index %d; now it is at %d, and no token admitted it since", who, a.RevokedIndex,
		b.RevokedIndex)
}

func (c *checker) personStep(name string, a, b *Person) {
	c.holds(S19, b.VoidBefore >= a.VoidBefore, "person %s: certificates before %d were void, now those before %d", name,
		a.VoidBefore, b.VoidBefore)
	c.holds(S19, a.RevokedIndex == 0 || b.RevokedIndex >= a.RevokedIndex || b.IssuedIndex > a.RevokedIndex,
		"person %s was revoked at index %d, and now at %d, without another certificate", name, a.RevokedIndex, b.RevokedIndex)
}

// spent reports whether a join token that was made after an index may have admitted a member. A token without a row may
// have: it was overdue.
func (c *checker) spent(id model.TokenID, after uint64) bool {
	t, ok := c.s.JoinTokens.Get(id)
	return !ok || t.Used > 0 && t.CreatedIndex > after
}

// revokedAgents returns the number of agents whose rows are revoked.
func (c *checker) revokedAgents() (n int) {
	for _, m := range c.s.TrustMembers.All() {
		if m.revokedAgent() {
			n++
		}
	}
	return n
}
