package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// Bounds of the rows of rights.
const (
	maxRoles    = 500
	maxBindings = 5000
)

// RightsRole is a role that an operator has made. The built-in roles have no rows.
type RightsRole struct {
	Name  rights.RoleName `cbor:"1,keyasint"`
	Allow []rights.Grant  `cbor:"2,keyasint"`
	Index uint64          `cbor:"3,keyasint"` // of the last change
}

// RightsBinding gives a role to subjects or to a group; see rights.Binding.
type RightsBinding struct {
	Role    rights.RoleName `cbor:"1,keyasint"`
	To      string          `cbor:"2,keyasint"`
	Creator model.Actor     `cbor:"3,keyasint,omitempty"` // empty for the binding with which rights begin
	Index   uint64          `cbor:"4,keyasint"`           // at which it was made
}

func (b *RightsBinding) rowKey() string { return bindingKey(b.Role, b.To) }

func bindingKey(role rights.RoleName, to string) string { return string(role) + " " + to }

// RoleSet makes a role, or replaces it. Whether its verbs exist depends on the program, so the API checks that; see
// rights.Role.Check. A row with the name of a built-in role has no effect. Codes: invalid; conflict if there are too
// many roles.
type RoleSet struct {
	Role rights.Role `cbor:"1,keyasint"`
}

// RoleRemove removes a role. Codes: not_found; in_use if a binding or an access token gives it.
type RoleRemove struct {
	Name rights.RoleName `cbor:"1,keyasint"`
}

// BindingAdd gives a role to subjects or to a group. If they have it by an equal binding, nothing changes. A binding to
// a role that does not exist gives nothing; the API refuses it. Codes: invalid; conflict if there are too many
// bindings.
type BindingAdd struct {
	Role rights.RoleName `cbor:"1,keyasint"`
	To   string          `cbor:"2,keyasint"`
}

// BindingRemove removes a binding. Code: not_found.
type BindingRemove struct {
	Role rights.RoleName `cbor:"1,keyasint"`
	To   string          `cbor:"2,keyasint"`
}

// everybody is the To of the binding with which rights begin: everyone with a certificate of role cli.
const everybody = "cert:*"

// beginRights makes the binding that keeps everybody an administrator, before the first change of rights. Whoever
// changes rights for the first time takes nothing away from others by that.
func (s *State) beginRights() {
	if s.RightsIndex == 0 {
		s.putBinding(&RightsBinding{Role: rights.Admin, To: everybody, Index: s.Index})
	}
}

// RightsBook returns the roles and bindings. While nobody has changed rights, everyone with a certificate of role cli
// is an administrator. Building it costs microseconds for each row; keep it as long as RightsIndex stays.
func (s *trust) RightsBook() *rights.Book {
	var roles []rights.Role
	for _, r := range s.Roles.All() {
		roles = append(roles, rights.Role{Name: r.Name, Allow: r.Allow})
	}
	return rights.NewBook(roles, s.BindingList())
}

// BindingList returns all bindings, sorted by role. While nobody has changed rights, it has the one with which rights
// begin.
func (s *trust) BindingList() (all []rights.Binding) {
	if s.RightsIndex == 0 {
		return []rights.Binding{{Role: rights.Admin, To: everybody}}
	}
	for _, b := range s.Bindings.All() {
		all = append(all, rights.Binding{Role: b.Role, To: b.To})
	}
	return all
}

func noRole(name rights.RoleName) *model.Error {
	return model.Refuse(model.CodeNotFound, "there is no role %q", model.ClipText(string(name), 100)).
		WithHint("list them with: outspan role ls")
}

func (c *RoleSet) apply(s *State) error {
	if refusal := c.Role.CheckShape(); refusal != nil {
		return refusal
	}
	old, exists := s.Roles.Get(c.Role.Name)
	if !exists && s.Roles.Len() >= maxRoles {
		return model.Refuse(model.CodeConflict, "there are %d roles already", maxRoles).
			WithHint("remove roles that nobody has: outspan role rm NAME")
	}
	next := &RightsRole{Name: c.Role.Name, Allow: c.Role.Allow, Index: s.Index}
	before := ""
	if exists {
		before = "set"
		if rights.Equal(old.Allow, next.Allow) {
			return nil
		}
	}
	s.beginRights()
	s.putRole(next)
	s.changedRights("role/"+string(c.Role.Name), before, "set")
	return nil
}

func (c *RoleRemove) apply(s *State) error {
	if !s.Roles.Has(c.Name) {
		return noRole(c.Name)
	}
	for _, b := range s.Bindings.From(string(c.Name) + " ") {
		if b.Role == c.Name {
			return model.Refuse(model.CodeInUse, "the role %s is given to %s", c.Name, b.To).
				WithHint("first: outspan auth revoke %s '%s'", c.Name, b.To)
		}
		break
	}
	for _, t := range s.AccessTokens.All() {
		if slices.Contains(t.Roles, c.Name) && t.counts(s) {
			return model.Refuse(model.CodeInUse, "the access token %s has the role %s", t.Name, c.Name).
				WithHint("first: outspan auth token revoke %s", t.Name)
		}
	}
	s.delRole(c.Name)
	s.changedRights("role/"+string(c.Name), "set", "removed")
	return nil
}

func (c *BindingAdd) apply(s *State) error {
	b := rights.Binding{Role: c.Role, To: c.To}
	refusal := b.CheckShape()
	switch {
	case refusal != nil:
		return refusal
	case s.Bindings.Has(bindingKey(c.Role, c.To)):
		return nil
	case s.Bindings.Len() >= maxBindings:
		return model.Refuse(model.CodeConflict, "there are %d bindings already", maxBindings).
			WithHint("bind groups or patterns in place of single people")
	}
	s.beginRights()
	s.putBinding(&RightsBinding{Role: c.Role, To: c.To, Creator: s.entry.actor, Index: s.Index})
	s.changedRights("binding/"+bindingKey(c.Role, c.To), "", "granted")
	return nil
}

func (c *BindingRemove) apply(s *State) error {
	begins := s.RightsIndex == 0 && c.Role == rights.Admin && c.To == everybody
	if !begins && !s.Bindings.Has(bindingKey(c.Role, c.To)) {
		return model.Refuse(model.CodeNotFound, "%s has no binding to the role %q", model.ClipText(c.To, 100),
			model.ClipText(string(c.Role), 100)).WithHint("list them with: outspan auth ls")
	}
	s.beginRights()
	s.delBinding(c.Role, c.To)
	s.changedRights("binding/"+bindingKey(c.Role, c.To), "granted", "revoked")
	return nil
}

// changedRights notes that the rights have changed, and emits an event about it.
func (s *State) changedRights(subject, before, after string) {
	s.RightsIndex = s.Index
	s.touch("rights")
	s.emit(Event{Type: model.EventRights, Subject: subject, Before: before, After: after})
}

// judgedBefore refuses an entry if rights have changed since the leader judged its caller.
func (s *State) judgedBefore(e Entry) *model.Error {
	if e.Rights == 0 || e.Rights-1 >= s.RightsIndex {
		return nil
	}
	return model.Refuse(model.CodeStale, "rights have changed while the request was carried out").
		WithHint("try again; nothing was changed")
}

// rights checks the rows of roles and bindings.
func (c *checker) rights() {
	s := c.s
	c.want(s.RightsIndex <= s.Index, "the rights are of index %d, the state of %d", s.RightsIndex, s.Index)
	c.want(s.Roles.Len() <= maxRoles && s.Bindings.Len() <= maxBindings+1, "there are %d roles and %d bindings",
		s.Roles.Len(), s.Bindings.Len())
	for name, r := range s.Roles.All() {
		role := rights.Role{Name: r.Name, Allow: r.Allow}
		refusal := role.CheckShape()
		c.want(name == r.Name && refusal == nil && r.Index <= s.RightsIndex, "role %s of index %d: %v", name, r.Index,
			refusal)
	}
	for key, b := range s.Bindings.All() {
		one := rights.Binding{Role: b.Role, To: b.To}
		refusal := one.CheckShape()
		c.want(key == b.rowKey() && refusal == nil && b.Index <= s.RightsIndex, "binding %s of index %d: %v", key, b.Index,
			refusal)
	}
}
