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

// person returns the caller as package rights knows it, with the roles and groups of its access token. ok is false for
// servers and agents: their certificates say what they may do. A caller whose token does not count has no rights.
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

// mayCall refuses a caller that may not call an operation on any object. For a verb of scope 0 nothing else is checked.
// Codes: forbidden, unauthenticated.
func (j *judge) mayCall(rt route, c caller) error {
	return j.mayCallOn(rt, c, rights.Object{})
}

// mayCallOn is mayCall for a call whose path names an object, for the refusal.
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
	if rt.id == "why" && !slices.ContainsFunc([]rights.Verb{"node.read", "job.read", "instance.read"}, p.MayAny) {
		return refusedRight(c, "instance.read", rights.Object{})
	}
	may := verb == noRight || p.MayAny(verb) ||
		verb == "node.approve" && p.MayAny("server.approve") // mayWrite knows which of them it takes
	if may {
		return nil
	}
	return refusedRight(c, verb, on)
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

// before returns a handler that refuses a caller that may not call the operation, and otherwise calls next. The context
// of a stream is canceled when the caller loses the right.
func (j *judge) before(s *Server, rt route, c caller, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := j.mayCallOn(rt, c, pathObject(r)); err != nil {
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

// mayDo refuses a caller that may not do something to one of the objects. Without objects it takes a right that no list
// of names restricts. Codes: forbidden, unauthenticated.
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
	for _, o := range on {
		if _, may := p.May(verb, o); !may {
			return refusedRight(c, verb, o)
		}
	}
	return nil
}

func refusedRight(c caller, verb rights.Verb, on rights.Object) error {
	what := string(verb)
	if on.Name != "" {
		what += " on " + on.Name
	}
	return model.Refuse(model.CodeForbidden, "%s may not do %s", c.Subject, what).
		WithHint("ask an administrator, who sees which role allows it: outspan auth can-i %s%s --as %s", verb,
			withBlank(on.Name), c.Subject)
}

func withBlank(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}

// mayWrite refuses a caller that may not do what the commands do. Code: forbidden.
func (j *judge) mayWrite(r *reading, rt route, c caller, commands []fsm.Command) error {
	who, ok := c.person(&r.State)
	if !ok {
		return nil
	}
	book := j.books.of(&r.State)
	for _, one := range commands {
		verb := verbs[rt.id]
		var spec *model.JobSpec // what runs then
		switch cmd := one.(type) {
		case *fsm.NewcomerApprove:
			verb = approveVerb(cmd.Newcomer)
		case *fsm.RestoreMark: // to confirm a restore stops what the state does not know
			verb = "snapshot.restore"
		case *fsm.NewcomerReject:
			verb = approveVerb(cmd.Newcomer)
		case *fsm.JobSubmit:
			spec = &cmd.Spec
		case *fsm.JobRevert:
			verb = rights.SubmitJob // also if a deployment that is failed goes back
			if v, ok := r.JobVersion(cmd.Job, cmd.Version); ok {
				spec = &v.Spec
			}
		}
		err := j.mayDo(&r.State, c, verb, commandObjects(&r.State, one)...)
		if err == nil && spec != nil {
			err = j.mayDo(&r.State, c, verb, specObject(*spec)) // its class may be another one
		}
		if err == nil && spec != nil {
			err = mayRunAs(book, who, c, *spec)
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

// mayAsk refuses a caller that may not ask what a command would do. Whoever may submit the job is also refused if it
// may not use the users of its programs. Code: forbidden.
func (j *judge) mayAsk(r *reading, rt route, c caller, command fsm.Command) error {
	on := commandObjects(&r.State, command)
	if err := j.mayDo(&r.State, c, verbs[rt.id], on...); err != nil {
		return err
	}
	submit, isSubmit := command.(*fsm.JobSubmit)
	who, ok := c.person(&r.State)
	if !isSubmit || !ok || j.mayDo(&r.State, c, rights.SubmitJob, on...) != nil {
		return nil // operators plan jobs and can't submit any
	}
	return mayRunAs(j.books.of(&r.State), who, c, submit.Spec)
}

// mayRunAs refuses a job whose programs run as users that the caller may not use. Code: forbidden.
func mayRunAs(book *rights.Book, who rights.Caller, c caller, spec model.JobSpec) error {
	on := specObject(spec)
	for _, g := range spec.Groups {
		for _, user := range g.Users() {
			if !book.MayRunAs(who, user, on) {
				return model.Refuse(model.CodeForbidden, "%s may not run programs of job %s as the user %q", c.Subject, spec.Name,
					clip(user)).WithHint("%s", mayRunHint(&g, clip(user)))
			}
		}
	}
	return nil
}

func mayRunHint(g *model.GroupSpec, user string) string {
	ask := fmt.Sprintf("ask an administrator for a role with users = [%q]", user)
	if g.Container == nil {
		return "leave the user out, or " + ask
	}
	return "a container may run as root unless its user is a number and it has neither mount nor cap_add; change that, or " + ask
}

func specObject(spec model.JobSpec) rights.Object {
	class := spec.Class
	if class == "" {
		class = model.ClassProduction
	}
	return rights.Object{Name: "job/" + string(spec.Name), Job: string(spec.Name), Class: string(class)}
}

// mayRead refuses a caller that may not read the answer of a read. Lists leave out what the caller may not read
// instead; see hides. Code: forbidden.
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

// explainVerb returns the verb that it takes to have something explained. subject is that of the explanation.
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

// whileReadable returns the context of a stream about an object of a job, as whileAllowed. The function on returns the
// object in a newer state. It refuses a caller that may not read the stream. The caller must call cancel unless there
// is an error. Code: forbidden.
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

// whileAllowed returns the context of a stream. It is canceled within a second after the caller has lost the right to
// read it, or its access token has ended. It looks again when the rights change, and when one of the topics does. The
// caller must call cancel once the stream has ended.
func (j *judge) whileAllowed(ctx context.Context, c caller, may func(*fsm.State) error,
	topics ...fsm.Topic) (_ context.Context, cancel func()) {
	state := j.store.Current()
	if _, ok := c.person(state); !ok {
		return ctx, func() {}
	}
	var stop context.CancelFunc
	if t, ok := c.accessToken(state); ok {
		ctx, stop = context.WithDeadline(ctx, time.Unix(0, t.Ends))
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
