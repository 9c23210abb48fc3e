package httpapi

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
)

// rightsNotes returns what people should know besides rightsChanges. given are the bindings that were added.
func rightsNotes(r *reading, given ...api.BindingBody) (notes []string) {
	everybody := rights.Binding{Role: rights.Admin, To: string(model.SubjectCert) + ":*"}
	if slices.Contains(r.BindingList(), everybody) {
		notes = append(notes, "everybody with a certificate of a person still is an administrator; to end that: "+
			"outspan auth revoke admin 'cert:*'")
	}
	if !anyMaySetRights(r) {
		notes = append(notes, "nobody may change roles and bindings then, except root on a server, over its unix socket")
	}
	for _, b := range given {
		if note := unmatched(r, rights.Binding{Role: b.Role, To: b.To}); note != "" {
			notes = append(notes, note)
		}
	}
	if !r.Managed() {
		notes = append(notes, "people with certificates of files are shown only if a binding names them")
	}
	return notes
}

// anyMaySetRights reports whether a binding or an access token gives the right to change rights.
func anyMaySetRights(r *reading) bool {
	book := r.RightsBook()
	gives := func(name rights.RoleName) bool { return book.Gives(name, "auth.set") }
	for _, b := range r.BindingList() {
		if gives(b.Role) {
			return true
		}
	}
	for _, t := range r.AccessTokens.All() {
		if t.CountsAt(r.wall.UnixNano()) && slices.ContainsFunc(t.Roles, gives) {
			return true
		}
	}
	return false
}

// unmatched returns a note about a binding that gives its role to nobody now, or "". If certificates are files, the
// servers don't know which people have one, so there is no note.
func unmatched(r *reading, b rights.Binding) string {
	if strings.HasPrefix(b.To, string(model.SubjectCert)+":") {
		if !r.Managed() {
			return ""
		}
		if r.by.Kind == model.SubjectCert && b.Gives(rights.Caller{Subject: r.by.Subject}) {
			return ""
		}
		for name, p := range r.People.All() {
			who := rights.Caller{Subject: model.Subject{Kind: model.SubjectCert, Name: name}}
			if !p.Everyone() && p.RevokedIndex == 0 && b.Gives(who) {
				return ""
			}
		}
		return "no certificate has a name like " + b.To + " yet; whoever gets one has the role"
	}
	for _, t := range r.AccessTokens.All() {
		if t.CountsAt(r.wall.UnixNano()) && b.Gives(rights.Caller{Subject: t.Subject, Groups: t.Groups}) {
			return ""
		}
	}
	return "no access token and no login matches " + b.To + " yet; whoever gets one has the role"
}

// heldGrant returns a grant that allows verbs, with its role.
func heldGrant(why rights.Reason, verbs ...rights.Verb) api.HeldGrant {
	v := api.HeldGrant{Role: why.Role, Verbs: verbs}
	if why.Binding != nil {
		v.Binding = why.Binding.To
	}
	if g := why.Grant; g != nil {
		v.Jobs, v.Nodes, v.Classes, v.Users = g.Jobs, g.Nodes, g.Classes, g.Users
		v.VolumePaths, v.Ports, v.Services, v.Budgets = g.VolumePaths, g.Ports, g.Services, g.Budgets
	}
	return v
}

// heldGrants returns by which grants somebody may do what, in the order of the verbs.
func heldGrants(p *rights.Permissions) []api.HeldGrant {
	all, at := []api.HeldGrant{}, map[*rights.Grant]int{}
	for _, verb := range rights.Verbs() {
		for _, why := range p.By(verb.Verb, nil) {
			if i, ok := at[why.Grant]; ok {
				all[i].Verbs = append(all[i].Verbs, verb.Verb)
				continue
			}
			at[why.Grant], all = len(all), append(all, heldGrant(why, verb.Verb))
		}
	}
	return all
}

// kindScopes says which names an object has, by its kind.
var kindScopes = map[string]rights.Scope{
	"node": rights.ScopeNode, "drain": rights.ScopeNode, "class": rights.ScopeClass,
	"job": rights.ScopeJob | rights.ScopeClass, "group": rights.ScopeJob | rights.ScopeClass,
	"deployment": rights.ScopeJob | rights.ScopeClass,
}

// wrongKind refuses a question about an object on which the verb does nothing. Code: invalid.
func wrongKind(verb rights.VerbText, object string) *model.Error {
	kind, _, _ := strings.Cut(object, "/")
	if scope, ok := kindScopes[kind]; !ok || verb.Scope == 0 || verb.Scope&scope != 0 {
		return nil
	}
	return model.Refuse(model.CodeInvalid, "%s is nothing that one does to a %s", verb.Verb, kind).
		WithHint("give %s/NAME; outspan role verbs shows what verbs are about", verb.Verb.Noun())
}

func (j *judge) whoami(ctx context.Context, r *reading, _ *whoamiRead) (api.Identity, error) {
	return j.identity(r, callerFrom(ctx)), nil
}

// askedAbout returns the objects about which can-i is asked. For what the caller may not see they are those of a name
// that nothing has, so the answer does not tell whether it exists. The exception is the right to submit a job, because
// a submission tells that too. The result is empty if the object must exist for an answer and does not.
func (j *judge) askedAbout(state *fsm.State, c caller, verb rights.Verb, object string) []rights.Object {
	kind, _, _ := strings.Cut(object, "/")
	sees := j.sight(state, c, verb)
	open := verb == rights.SubmitJob && kind == "job" || j.mayDo(state, c, "auth.read") == nil
	if open || sees == nil || sees(object) {
		return objectsAt(state, object)
	}
	nothing := fsm.NewState()
	return objectsAt(&nothing, object)
}

func (j *judge) canI(ctx context.Context, r *reading, in *canIRead) (api.Permission, error) {
	c := callerFrom(ctx)
	self, _ := c.person(&r.State)
	book := j.books.of(&r.State)
	verb := rights.Verb(in.Verb)
	text, ok := verb.Info()
	if !ok {
		return api.Permission{}, cmp.Or(rights.VerbPattern(verb).Check(), model.Refuse(model.CodeInvalid,
			"%s is a pattern", clip(in.Verb)).WithHint("ask about one verb: outspan role verbs"))
	}
	who := self
	if in.As != "" && in.As != c.String() {
		if !book.MayAny(self, "auth.read") {
			return api.Permission{}, refusedRight(c, "auth.read", rights.Object{})
		}
		other, err := r.subjectNamed(in.As)
		if err != nil {
			return api.Permission{}, err
		}
		who, _ = other.person(&r.State)
	}
	v := api.Permission{Subject: who.Subject.String(), Verb: verb, Object: in.Object, Would: []api.BindingBody{}}
	if v.Object != "" && !strings.Contains(v.Object, "/") {
		v.Object = verb.Noun() + "/" + v.Object
	}
	on := []rights.Object{}
	if in.Object == "" && len(in.Asks) > 0 {
		return api.Permission{}, model.Refuse(model.CodeInvalid, "asks go with the job that asks").
			WithHint("name the job too: job/NAME; there need not be one")
	}
	if refusal := wrongKind(text, v.Object); refusal != nil {
		return api.Permission{}, refusal
	}
	if in.Object != "" {
		if on = j.askedAbout(&r.State, c, verb, v.Object); len(on) == 0 {
			return api.Permission{}, model.Refuse(model.CodeNotFound, "there is no %q", clip(v.Object)).
				WithHint("give node/NAME, job/NAME, instance/ID, drain/ID, volume/ID or class/NAME with the whole name")
		}
	}
	asks, err := asked(verb, in.Asks)
	if err != nil {
		return api.Permission{}, err
	}
	for i := range on {
		on[i].Asks = asks
	}
	p := book.For(who)
	v.Allowed = in.Object != "" || p.MayAny(verb)
	if in.Object == "" {
		allowedBy(&v, who, p.By(verb, nil))
	}
	for _, o := range on {
		_, ok := p.May(verb, o)
		if v.Allowed = v.Allowed && ok; ok {
			allowedBy(&v, who, p.By(verb, &o))
			continue
		}
		for _, a := range p.Lacking(o) {
			v.Lacking = append(v.Lacking, a.String())
		}
		if book.MayAny(self, "auth.read") {
			for _, b := range book.Would(verb, o) {
				v.Would = append(v.Would, api.BindingBody{Role: b.Role, To: b.To})
			}
		}
	}
	if !v.Allowed {
		v.Role, v.Binding, v.Grants = "", "", nil
	}
	return v, nil
}

// asked parses what a job asks for, of a question about submitting it. Code: invalid.
func asked(verb rights.Verb, texts []string) (all []rights.Ask, _ error) {
	if len(texts) > 0 && verb != rights.SubmitJob {
		return nil, model.Refuse(model.CodeInvalid, "%s does not depend on what a job asks for", verb).
			WithHint("ask about %s", rights.SubmitJob)
	}
	for _, text := range texts {
		one, refusal := rights.ParseAsk(text)
		if refusal != nil {
			return nil, refusal
		}
		all = append(all, one)
	}
	return all, nil
}

// allowedBy says by which grants somebody may do something.
func allowedBy(v *api.Permission, who rights.Caller, grants []rights.Reason) {
	if who.Local {
		v.Role = rights.Admin
	}
	v.Grants = nil
	for _, why := range grants {
		v.Grants = append(v.Grants, heldGrant(why, v.Verb))
	}
	if len(v.Grants) > 0 {
		v.Role, v.Binding = v.Grants[0].Role, v.Grants[0].Binding
	}
}

// subjectNamed returns a subject that can have roles as a caller, with its access token if it has one. Codes: invalid;
// not_found if there is no such token.
func (r *reading) subjectNamed(text string) (caller, error) {
	subject, ok := model.ParseSubject(text)
	c := caller{Subject: subject, clock: &clock{func() time.Time { return r.wall }}}
	if !ok || c.role() != pki.RoleCLI {
		return caller{}, model.Refuse(model.CodeInvalid, "%q is no subject that can have roles", clip(text)).
			WithHint("write cert:NAME, token:NAME or oidc:ISSUER#SUB")
	}
	if subject.Kind != model.SubjectToken && subject.Kind != model.SubjectOIDC {
		return c, nil
	}
	tokens := r.AccessTokensOf(subject, r.wall.UnixNano())
	if len(tokens) == 0 {
		return caller{}, model.Refuse(model.CodeNotFound, "there is no access token %q that counts", clip(subject.Name)).
			WithHint("list them with: outspan auth token ls")
	}
	newest := slices.MaxFunc(tokens, func(x, y *fsm.AccessToken) int { return cmp.Compare(x.Index, y.Index) })
	c.token = newest.ID // the newest of several logins has the newest groups
	return c, nil
}
