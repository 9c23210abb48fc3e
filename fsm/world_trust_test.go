package fsm

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// The functions below don't call fresh, which would change the ids that other commands get.

// trusting mostly draws nothing, and otherwise one or two groups of commands about keys, join tokens and members.
func (w world) trusting() [][]Command {
	if w.r = w.apart; !w.rarely(3) {
		return nil
	}
	groups := [][]Command{w.trustCommands()}
	if w.bool() {
		groups = append(groups, w.trustCommands())
	}
	return groups
}

// trustCommands draws a group of one sort. It draws a few times until the state accepts one.
func (w world) trustCommands() []Command {
	draw := pick(w, w.keyPuts, w.keyPuts, w.one(w.keyDrop), w.one(w.tokenCreate), w.one(w.tokenCreate),
		w.one(w.tokenRevoke), w.admits, w.admits, w.admits, w.one(w.memberRenew), w.one(w.memberRenew),
		w.one(w.memberRevoke), w.one(w.memberHolds))
	group := draw()
	for range 4 {
		if w.s.NewDraft(w.s.Now).Try(group...) == nil || w.rarely(4) {
			break
		}
		group = draw()
	}
	return group
}

// anyGroup draws a group of commands of any sort.
func (w world) anyGroup() []Command {
	if w.rarely(4) {
		return w.trustCommands()
	}
	return []Command{w.command()}
}

func (w world) one(draw func() Command) func() []Command {
	return func() []Command { return []Command{draw()} }
}

// hash draws 32 bytes that are not drawn twice. Rarely, it draws a wrong number of bytes.
func (w world) hash() []byte {
	b := make([]byte, 32)
	binary.BigEndian.PutUint64(b, w.r.Uint64())
	if w.rarely(30) {
		return b[:w.int(0, 31)]
	}
	return b
}

// keyPuts draws a new key, or the next version of a key. Mostly, the phase is one that the key may have. The group
// retires the active key first if that is necessary.
func (w world) keyPuts() []Command {
	kind := pick(w, append(model.KeyKinds(), "other")...)
	if !w.s.Managed() && w.bool() {
		kind = model.KeyCA
	}
	keys := w.s.KeysOf(kind)
	c := &KeyPut{Name: model.NewKeyName(kind, 1), Version: 1, Phase: pick(w, model.KeyPhases()...), Sealed: w.hash(),
		Under: "kek"}
	if len(keys) > 0 {
		c.Name = model.NewKeyName(kind, keys[len(keys)-1].number()+1)
		if w.bool() {
			k := pick(w, keys...)
			c.Name, c.Version = k.Name, k.Version+1
		}
	}
	if kind == model.KeyCA {
		c.Public = []byte("certificate")
		if w.rarely(4) {
			c.Passed, c.Grace = []string{"agent:n1", "server:s1"}, pick(w, 0, model.Hour, maxKeyGrace+1)
		}
	}
	if data, ok := w.s.ActiveKey(model.KeyData); ok && kind != model.KeyData {
		c.Under = string(data.Name)
	}
	switch w.int(1, 30) {
	case 5:
		c.Passed = []string{"server:s1", "agent:n1"}
	case 1:
		c.Version += uint64(w.int(1, 2))
	case 2:
		c.Phase = "young"
	case 3:
		c.Under = pick(w, "", "data/9", "gossip/1")
	case 4:
		c.Public = w.hash()
	}
	group := []Command{c}
	if active, ok := w.s.ActiveKey(kind); ok && active.Name != c.Name && c.Phase == model.KeyActive && !w.rarely(4) {
		retire := &KeyPut{Name: active.Name, Version: active.Version + 1, Phase: model.KeyRetired, Under: active.Under,
			Sealed: w.hash(), Public: active.Public}
		group = []Command{retire, c}
	}
	return group
}

func (w world) keyDrop() Command {
	for name, k := range w.s.TrustKeys.All() {
		if k.Phase == model.KeyRetired && w.bool() {
			return &KeyDrop{name}
		}
	}
	return &KeyDrop{key(w, w.s.TrustKeys)}
}

func (w world) tokenID() model.TokenID {
	const digits = "abcdefghijklmnopqrstuvwxyz0123456789"
	id := make([]byte, 12)
	for i := range id {
		id[i] = digits[w.int(0, len(digits)-1)]
	}
	return model.TokenID(id)
}

func (w world) tokenCreate() Command {
	c := &TokenCreate{ID: w.tokenID(), Role: pick(w, "server", "server", "agent"), Verifier: w.hash(),
		TTL: pick(w, 10*model.Second, model.Hour), Uses: w.int(1, 3)}
	if w.rarely(3) {
		c.NodeName = pick(w, "m[1-3]", "x*", "[")
	}
	if w.rarely(3) {
		c.Labels = map[string]string{pick(w, "rack", "bad key"): "r1"}
	}
	switch w.int(1, 20) {
	case 1:
		c.ID = key(w, w.s.JoinTokens)
	case 2:
		c.Role = "cli"
	case 3:
		c.TTL = pick(w, 0, -model.Second, model.Forever)
	case 4:
		c.Uses = pick(w, -1, 0, maxTokenUses+1)
	}
	return c
}

func (w world) tokenRevoke() Command { return &TokenRevoke{key(w, w.s.JoinTokens)} }

// subject draws one of a few names, so that most of them are members after a while.
func (w world) subject() model.Subject {
	return model.Subject{Kind: pick(w, model.SubjectServer, model.SubjectAgent, model.SubjectAgent),
		Name: pick(w, "m1", "m2", "m3", "m4", "n1.local")}
}

// member draws a member, or rarely a name that may belong to none.
func (w world) member() *TrustMember {
	var all []*TrustMember
	for _, m := range w.s.TrustMembers.All() {
		all = append(all, m)
	}
	if len(all) == 0 || w.rarely(20) {
		return &TrustMember{Subject: w.subject(), Key: w.hash()}
	}
	return pick(w, all...)
}

func (w world) notAfter() int64 { return w.s.Wall + int64(w.int(0, 1000)) }

// admits draws an admission: of a newcomer, of a member again, or of a server together with its agent.
func (w world) admits() []Command {
	id := key(w, w.s.JoinTokens)
	c := &MemberAdmit{Subject: w.subject(), Key: w.hash(), NotAfter: w.notAfter(), Token: id, CA: w.caName()}
	if t, ok := w.s.JoinTokens.Get(id); ok {
		c.Verifier = t.Verifier
	}
	switch w.int(1, 12) {
	case 1:
		c.Verifier = w.hash()
	case 2:
		c.Subject.Kind = model.SubjectCert
	case 3:
		c.Subject.Name = "no name"
	case 4, 5:
		m := w.member()
		c.Subject, c.Key, c.Token = m.Subject, m.Key, m.Token
		if t, ok := w.s.JoinTokens.Get(c.Token); ok {
			c.Verifier = t.Verifier
		}
	case 6, 7:
		server, agent := *c, *c
		server.Subject.Kind, agent.Subject.Kind, agent.Key = model.SubjectServer, model.SubjectAgent, w.hash()
		return []Command{&server, &agent}
	}
	return []Command{c}
}

// caName draws the CA of a certificate: mostly one that the state has, or none.
func (w world) caName() model.KeyName {
	if cas := w.s.KeysOf(model.KeyCA); len(cas) > 0 && w.bool() {
		return pick(w, cas...).Name
	}
	return pick[model.KeyName](w, "", "", "", "", "", "", "ca/9", "data/1")
}

func (w world) memberRenew() Command {
	m := w.member()
	c := &MemberRenew{Subject: m.Subject, Old: m.Key, Key: w.hash(), NotAfter: w.notAfter(), CA: w.caName()}
	switch w.int(1, 8) {
	case 1:
		c.Old = m.PreviousKey
	case 2:
		c.Old = w.hash()
	case 3, 4:
		c.Key = m.Key
	case 5:
		c.Key = m.PreviousKey
	}
	return c
}

func (w world) memberRevoke() Command {
	return &MemberRevoke{w.member().Subject, pick(w, "", "the disk was stolen")}
}

func (w world) memberHolds() Command {
	return &MemberHolds{w.member().Subject, pick(w, nil, w.hash()), pick(w, nil, w.hash(), []byte("short"))}
}

// newcomers mostly draws nothing, and otherwise a change of join_approval, a newcomer, or a decision about one. Only
// TestRandomHistories calls it, so the histories in words stay as they are.
func (w world) newcomers() []Command {
	if !w.rarely(2) {
		return nil
	}
	if !w.s.Settings.JoinApproval || w.rarely(20) {
		next := w.s.Settings
		next.JoinApproval = !next.JoinApproval
		return []Command{&SettingsSet{Settings: next}}
	}
	if n := w.newcomer(); n != nil && w.bool() {
		if w.rarely(10) {
			n.Index++
		}
		return []Command{pick[Command](w, &NewcomerApprove{n.Subject(), n.Key(), n.Index},
			&NewcomerApprove{n.Subject(), n.Key(), n.Index}, &NewcomerReject{n.Subject(), n.Key(), n.Index})}
	}
	if n := w.newcomer(); n != nil && n.ApprovedIndex != 0 {
		return w.arrival(n)
	}
	id := key(w, w.s.JoinTokens)
	c := &NewcomerWait{Name: pick(w, "m6", "m7", "m8", "a/b"), Agent: w.hash(), Token: id, Address: "10.0.0.9"}
	if t, ok := w.s.JoinTokens.Get(id); ok {
		c.Verifier = t.Verifier
	}
	if w.bool() {
		c.Server = w.hash()
	}
	return []Command{c}
}

// newcomer draws a copy of a newcomer's row, or nil.
func (w world) newcomer() *Newcomer {
	var all []*Newcomer
	for _, n := range w.s.Newcomers.All() {
		all = append(all, n)
	}
	if len(all) == 0 {
		return nil
	}
	one := *pick(w, all...)
	return &one
}

// arrival returns the admission of a newcomer.
func (w world) arrival(n *Newcomer) (group []Command) {
	t, ok := w.s.JoinTokens.Get(n.Token)
	if !ok {
		return nil
	}
	for kind, hash := range map[model.SubjectKind][]byte{n.Subject().Kind: n.Key(), model.SubjectAgent: n.Agent} {
		if len(hash) > 0 {
			group = append(group, &MemberAdmit{Subject: model.Subject{Kind: kind, Name: n.Name}, Key: hash,
				NotAfter: w.notAfter(), Token: n.Token, Verifier: t.Verifier})
		}
	}
	slices.SortFunc(group, func(a, b Command) int { // the server first
		return -cmp.Compare(a.(*MemberAdmit).Subject.Kind, b.(*MemberAdmit).Subject.Kind)
	})
	return group
}

// people often draws nothing, and otherwise a certificate of a person, a revocation or, rarely, a recovery. A
// certificate may be recorded some entries after it was signed. Like newcomers, it is for TestRandomHistories alone.
func (w world) people() []Command {
	switch {
	case w.rarely(200):
		return []Command{&RestoreMark{Recovered: true, VoidPeople: true}}
	case w.bool():
		return nil
	}
	who := model.Subject{Kind: model.SubjectCert, Name: pick(w, "alice", "bob", "carol@example.com", "a/b", "*")}
	if w.rarely(3) {
		return []Command{&PersonRevoke{who, pick(w, "", "the laptop was stolen")}}
	}
	c := &PersonAdmit{Subject: who, Key: w.hash(), NotAfter: w.notAfter(), Number: w.s.MomentNumber()}
	if p, ok := w.s.People.Get(who.Name); ok && w.rarely(4) {
		c.Key = p.Key
	}
	if w.rarely(4) {
		c.Number -= min(c.Number, uint64(w.int(1, 20)))
	}
	return []Command{c}
}

// rights mostly draws nothing, and otherwise a change of a role or of a binding.
func (w world) rights() []Command {
	if !w.rarely(3) {
		return nil
	}
	role := pick[rights.RoleName](w, "shop", "bank", rights.Viewer, rights.Admin, "Bad")
	to := pick(w, "cert:alice", "cert:*", "group:shop", "agent:n1", "cert:")
	verb := pick[rights.VerbPattern](w, "*", "node.*", "job.read", "node.fly")
	set := rights.Role{Name: role, Allow: []rights.Grant{{Verbs: []rights.VerbPattern{verb}}}}
	return []Command{pick[Command](w, &RoleSet{set}, &RoleRemove{role}, &BindingAdd{role, to}, &BindingAdd{role, to},
		&BindingRemove{role, to})}
}

// accessTokens mostly draws nothing, and otherwise a new access token, or the end of one.
func (w world) accessTokens() []Command {
	if !w.rarely(3) {
		return nil
	}
	if w.rarely(3) {
		return []Command{&AccessTokenRevoke{key(w, w.s.AccessTokens)}}
	}
	if w.rarely(3) {
		return []Command{&AccessLogin{ID: w.tokenID(), Name: LoginName(pick(w, "a", "b", "c d")), Hash: w.hash(),
			Subject: model.Subject{Kind: pick(w, model.SubjectOIDC, model.SubjectOIDC, model.SubjectToken),
				Name: "https://id#al"},
			TTL: pick(w, model.Second, model.Hour, maxAccessTTL+1), Groups: []string{"shop"}, Person: "al"}}
	}
	c := &AccessTokenCreate{ID: w.tokenID(), Name: pick(w, "ci", "ci", "nightly", "shop@ci", "a b"), Hash: w.hash(),
		TTL: pick(w, model.Second, 10*model.Second, model.Hour, maxAccessTTL+1)}
	c.Subject = model.Subject{Kind: pick(w, model.SubjectToken, model.SubjectToken, model.SubjectToken, model.SubjectCert),
		Name: c.Name}
	if w.bool() {
		c.Roles = []rights.RoleName{pick[rights.RoleName](w, "shop", "bank", rights.Viewer, "Bad")}
	}
	if w.rarely(3) {
		c.Groups = []string{pick(w, "shop", "")}
	}
	if w.rarely(10) {
		c.ID = key(w, w.s.AccessTokens)
	}
	return []Command{c}
}

// founding mostly draws nothing. Otherwise it draws the first keys and members of a cluster, or an export of the
// keyring.
func (w world) founding() []Command {
	data, ok := w.s.ActiveKey(model.KeyData)
	switch {
	case !w.rarely(5):
	case ok && w.s.Managed():
		return []Command{&KeyringExported{data.Name, pick(w, data.Under, data.Under, "other")}}
	case !ok && len(w.s.KeysOf(model.KeyData)) == 0:
		return []Command{&KeyPut{Name: "data/1", Version: 1, Phase: model.KeyActive, Under: "kek", Sealed: w.hash()}}
	case ok:
		return []Command{&KeyPut{Name: "ca/1", Version: 1, Phase: model.KeyActive, Under: string(data.Name), Sealed: w.hash(),
			Public: []byte("certificate")}, &MemberFound{w.subject(), w.hash(), w.notAfter()}, &AgentsFound{w.notAfter()}}
	}
	return nil
}
