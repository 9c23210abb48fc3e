package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
)

// judge decides who may call what, by the roles and bindings of the state. It is safe for concurrent use.
type judge struct {
	store Store
	books books
}

// person returns the caller as package rights knows it, with the roles and groups of its access token. A caller whose
// token has ended or was revoked gets an identity without rights. ok is false if rights don't limit the caller: a
// server or agent may do what its certificate says, and a login needs no right.
func (c caller) person(state *fsm.State) (who rights.Caller, ok bool) {
	if c.counts(state) != nil {
		return rights.Caller{}, true
	}
	if c.login {
		return rights.Caller{}, false
	}
	who = rights.Caller{Subject: c.Subject, Local: c.Kind == model.SubjectUID}
	if t, ok := c.accessToken(state); ok {
		who.Roles, who.Groups = t.Roles, t.Groups
	}
	return who, c.role() == pki.RoleCLI
}

// mayCall refuses a caller whose rights allow an operation on no object at all. A verb of scope 0 needs no further
// check. Codes: forbidden, unauthenticated.
func (j *judge) mayCall(rt route, c caller) error {
	return j.mayCallOn(rt, c, rights.Object{})
}

// mayCallOn is mayCall with a refusal that names the object on. It does not judge the call by that object.
func (j *judge) mayCallOn(rt route, c caller, on rights.Object) error {
	state := j.store.Current()
	if err := c.counts(state); err != nil {
		return err
	}
	who, ok := c.person(state)
	if !ok {
		return nil
	}
	verb, listed := verbs[rt.id]
	if !listed {
		return model.Refuse(model.CodeForbidden, "%s has no verb, so nobody may call it", rt.id)
	}
	p := j.books.permissions(state, who)
	if some := anyOf[rt.id]; some != nil && !slices.ContainsFunc(some, p.MayAny) {
		return refusedRight(c, "instance.read", rights.Object{})
	}
	may := verb == noRight || p.MayAny(verb) ||
		verb == "node.approve" && p.MayAny("server.approve") // mayWrite checks which of the two is needed
	if may {
		return nil
	}
	first, _, _ := strings.Cut(on.Name, ", ")
	at := append(objectsAt(state, first), rights.Object{})[0]
	return j.refused(state, p, c, verb, on.Name, at)
}

// pathObject returns the job, node or class that the path of a request names, as the caller wrote it. It is empty if
// the path names none.
func pathObject(r *http.Request) (on rights.Object) {
	parts := strings.Split(r.URL.Path, "/") // "", "v1", "jobs", NAME
	kind := map[string]string{"jobs": "job", "nodes": "node", "classes": "class"}
	named := len(parts) > 3 && slices.Contains([]string{r.PathValue("name"), r.PathValue("id")}, parts[3])
	if named && kind[parts[2]] != "" && parts[3] != "" {
		on.Name = kind[parts[2]] + "/" + clip(parts[3])
	}
	return on
}

// askedObject is pathObject, also for a drain of the nodes in its body.
func askedObject(rt route, r *http.Request) (on rights.Object) {
	var drain api.DrainBody
	if rt.id != "start-drain" || decodeStrict(bodyFrom(r.Context()), &drain) != nil {
		return pathObject(r)
	}
	var names []string
	for _, n := range drain.Nodes {
		names = append(names, "node/"+clip(n))
	}
	on.Name = someNames(names)
	return on
}

// maxNamesShown is how many names or asks a refusal has.
const maxNamesShown = 5

// someNames joins the first names of a list, without those that come twice.
func someNames(names []string) string {
	names = slices.Compact(names)
	if more := len(names) - maxNamesShown; more > 0 {
		names = append(slices.Clone(names[:maxNamesShown]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// before returns a handler that refuses a caller that may not call the operation, and otherwise calls next. The context
// of a stream is canceled when the caller loses the right.
func (j *judge) before(s *Server, rt route, c caller, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := j.mayCallOn(rt, c, askedObject(rt, r)); err != nil {
			s.refuse(w, rt, c, err)
			return
		}
		if rt.stream {
			ctx, cancel := j.whileAllowed(r.Context(), c, func(*fsm.State) error { return j.mayCall(rt, c) })
			defer cancel()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// mayDo refuses a caller that lacks the verb on at least one of the objects. If there are no objects, the caller needs
// the verb on everything. Codes: forbidden, unauthenticated.
func (j *judge) mayDo(state *fsm.State, c caller, verb rights.Verb, on ...rights.Object) error {
	if err := c.counts(state); err != nil {
		return err
	}
	who, ok := c.person(state)
	if !ok || verb == noRight {
		return nil
	}
	if len(on) == 0 {
		on = []rights.Object{{}}
	}
	p := j.books.permissions(state, who)
	var refused []string
	var first rights.Object
	for _, o := range on {
		if _, may := p.May(verb, o); may {
			continue
		}
		if lacking := p.Lacking(o); len(refused) == 0 && len(lacking) > 0 {
			return j.refusedAsks(state, p, c, o, lacking)
		}
		if len(refused) == 0 {
			first = o
		}
		refused = append(refused, o.Name)
	}
	if len(refused) == 0 {
		return nil
	}
	return j.refused(state, p, c, verb, someNames(refused), first)
}

// refused is refusedRight for what the names name. A caller that may read the rights learns which role allows it on the
// object on, the first of them.
func (j *judge) refused(state *fsm.State, p *rights.Permissions, c caller, verb rights.Verb, names string,
	on rights.Object) error {
	refusal := refusedRight(c, verb, rights.Object{Name: names})
	if !p.MayAny("auth.read") {
		return refusal
	}
	if would := j.books.of(state).Would(verb, on); len(would) > 0 {
		return refusal.WithHint("the role %s allows it to %s", would[0].Role, would[0].To)
	}
	return refusal.WithHint("no role that is bound allows it; list the roles with: outspan role ls")
}

func refusedRight(c caller, verb rights.Verb, on rights.Object) *model.Error {
	what := string(verb)
	if on.Name != "" {
		what += " on " + on.Name
	}
	first, _, _ := strings.Cut(on.Name, ", ")
	return model.Refuse(model.CodeForbidden, "%s may not do %s", c.Subject, what).
		WithHint("ask an administrator, who sees which role allows it: outspan auth can-i %s%s --as %s", verb,
			withBlank(first), c.Subject)
}

// refusedAsks refuses a job of which a group asks for what the caller may not have.
func (j *judge) refusedAsks(state *fsm.State, p *rights.Permissions, c caller, on rights.Object,
	lacking []rights.Ask) error {
	var what, question []string
	for _, a := range lacking {
		what, question = append(what, clip(a.String())), append(question, " --ask "+clip(a.List+"="+a.Name))
	}
	question = question[:min(len(question), maxNamesShown)]
	refusal := model.Refuse(model.CodeForbidden, "%s may not do %s on %s: group %s asks for %s", c.Subject,
		rights.SubmitJob, on.Name, clip(on.Group), someNames(what))
	if p.MayAny("auth.read") {
		if would := j.books.of(state).Would(rights.SubmitJob, on); len(would) > 0 {
			return refusal.WithHint("the role %s allows it to %s", would[0].Role, would[0].To)
		}
		return refusal.WithHint("no role that is bound allows all of it; one needs a block allow { } with %s and %s",
			rights.SubmitJob, someNames(what))
	}
	without := "leave it out"
	if on.Container && slices.Contains(lacking, rights.Ask{List: "users", Name: "root"}) {
		without = "a container asks for root unless its user is a number and it has neither mount nor cap_add; change that"
	}
	return refusal.WithHint("%s, or ask an administrator, who sees which role allows it: "+
		"outspan auth can-i %s %s%s --as %s", without, rights.SubmitJob, on.Name, strings.Join(question, ""), c.Subject)
}

func withBlank(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}

// mayWrite refuses a caller that may not do what the commands do. Code: forbidden.
func (j *judge) mayWrite(r *reading, rt route, c caller, commands []fsm.Command) error {
	if _, ok := c.person(&r.State); !ok {
		return nil
	}
	for _, one := range commands {
		verb := verbs[rt.id]
		var spec *model.JobSpec // what the job would run
		on := commandObjects(&r.State, one)
		switch cmd := one.(type) {
		case *fsm.NewcomerApprove:
			verb = approveVerb(cmd.Newcomer)
		case *fsm.RestoreMark: // confirming a restore stops the instances that the restored state does not know
			verb = "snapshot.restore"
		case *fsm.NewcomerReject:
			verb = approveVerb(cmd.Newcomer)
		case *fsm.DrainStart: // whoever resumes the roll drains all of its nodes
			on = append(on, rollObjects(&r.State, cmd.Options.Roll)...)
		case *fsm.JobSubmit:
			spec = &cmd.Spec
		case *fsm.JobRevert:
			verb = rights.SubmitJob // a failed deployment reverts its job too
			if v, ok := r.JobVersion(cmd.Job, cmd.Version); ok {
				spec = &v.Spec
			}
		}
		err := j.mayDo(&r.State, c, verb, on...)
		if err == nil && spec != nil {
			err = j.mayDo(&r.State, c, verb, specObjects(*spec)...) // the spec may change the job's class
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func approveVerb(who model.Subject) rights.Verb {
	if who.Kind == model.SubjectServer {
		return "server.approve"
	}
	return "node.approve"
}

// mayAsk refuses a caller that may not ask what a command would do. If the caller may submit the job, mayAsk also
// checks what the job asks for, as a submit would. Code: forbidden.
func (j *judge) mayAsk(r *reading, rt route, c caller, command fsm.Command) error {
	on := commandObjects(&r.State, command)
	if err := j.mayDo(&r.State, c, verbs[rt.id], on...); err != nil {
		return err
	}
	submit, isSubmit := command.(*fsm.JobSubmit)
	if !isSubmit || j.mayDo(&r.State, c, rights.SubmitJob, on...) != nil {
		return nil // operators plan jobs and can't submit any
	}
	return j.mayDo(&r.State, c, rights.SubmitJob, specObjects(submit.Spec)...)
}

// specObjects returns the job of a spec as an object for each group, with what the group asks for.
func specObjects(spec model.JobSpec) []rights.Object {
	all := []rights.Object{specObject(spec)}
	for i := range spec.Groups {
		one := all[0]
		one.Group, one.Asks = spec.Groups[i].Name, rights.Asks(&spec.Groups[i])
		one.Container = spec.Groups[i].Container != nil
		all = append(all, one)
	}
	return all
}

func specObject(spec model.JobSpec) rights.Object {
	class := spec.Class
	if class == "" {
		class = model.ClassProduction
	}
	return rights.Object{Name: "job/" + string(spec.Name), Job: string(spec.Name), Class: string(class)}
}

// mayRead refuses a caller that may not read the answer of a read. A list is not refused for its items: it leaves out
// those that hides reports. Code: forbidden.
func (j *judge) mayRead(ctx context.Context, r *reading, rt route, answer any) error {
	c := callerFrom(ctx)
	if why, ok := answer.(api.Why); ok {
		return j.mayDo(&r.State, c, explainVerb(why.Subject), objectsAt(&r.State, why.Subject)...)
	}
	if _, ok := answer.(interface{ partial() }); ok {
		return j.mayCall(rt, c) // again, because a blocking read may have waited
	}
	return j.mayDo(&r.State, c, verbs[rt.id], answerObjects(&r.State, answer)...)
}

// hides returns the function that says whether a list leaves an item out because the caller may not read it.
func (j *judge) hides(ctx context.Context, r *reading, rt route) func(item any) bool {
	who, ok := callerFrom(ctx).person(&r.State)
	verb := verbs[rt.id]
	if !ok || verb == noRight {
		return func(any) bool { return false }
	}
	p := j.books.permissions(&r.State, who)
	if p.Reach(verb) == rights.Everything {
		return func(any) bool { return false }
	}
	return func(item any) bool { return !mayAll(p, verb, answerObjects(&r.State, item)) }
}

// partial marks an answer that leaves out what the caller may not read.
func (List[V]) partial() {}

// explainVerb returns the verb that a caller needs to see the explanation of a subject such as "job/web".
func explainVerb(subject string) rights.Verb {
	kind, _, _ := strings.Cut(subject, "/")
	switch kind {
	case "node", "drain":
		return "node.read"
	case "job", "group", "deployment":
		return "job.read"
	}
	return "instance.read"
}

// whileReadable is whileAllowed for a stream about an object of a job, such as the logs of an instance. It first
// refuses a caller that may not read the stream. The function on returns the object as a state shows it. The caller
// must call cancel unless there is an error. Code: forbidden.
func (j *judge) whileReadable(ctx context.Context, operation string, job model.JobName,
	on func(*fsm.State) rights.Object) (_ context.Context, cancel context.CancelFunc, _ error) {
	c := callerFrom(ctx)
	noteFrom(ctx).about(on(j.store.Current()))
	may := func(state *fsm.State) error { return j.mayDo(state, c, verbs[operation], on(state)) }
	if err := may(j.store.Current()); err != nil {
		return nil, nil, err
	}
	ctx, cancel = j.whileAllowed(ctx, c, may, "job/"+fsm.Topic(job))
	return ctx, cancel, nil
}

// whileAllowed returns the context of a stream. The context is canceled when may returns an error, and when the
// caller's access token ends. The function may is called again after each change of the rights or of one of the topics,
// from several goroutines. The caller must call cancel once the stream has ended.
func (j *judge) whileAllowed(ctx context.Context, c caller, may func(*fsm.State) error,
	topics ...fsm.Topic) (_ context.Context, cancel func()) {
	state := j.store.Current()
	if _, ok := c.person(state); !ok {
		return ctx, func() {}
	}
	var stop context.CancelFunc
	if t, ok := c.accessToken(state); ok {
		ctx, stop = context.WithTimeout(ctx, time.Unix(0, t.Ends).Sub(c.clock.time()))
	} else {
		ctx, stop = context.WithCancel(ctx)
	}
	for _, topic := range append(topics, "rights") {
		go func() {
			for {
				woken, leave := j.store.WatchTopic(topic)
				if may(j.store.Current()) != nil {
					stop()
				}
				select {
				case <-woken:
					leave()
				case <-ctx.Done():
					leave()
					return
				}
			}
		}()
	}
	return ctx, stop
}
