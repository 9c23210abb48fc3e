package httpapi

import (
	"context"
	"strings"
	"sync"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
)

// books keeps the book of the newest rights that were asked for. It is safe for concurrent use.
type books struct {
	mu    sync.Mutex
	index uint64
	book  *rights.Book
}

// of returns the book of a state.
func (b *books) of(state *fsm.State) *rights.Book {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.book == nil || b.index != state.RightsIndex {
		b.book, b.index = state.RightsBook(), state.RightsIndex
	}
	return b.book
}

// person returns the caller as package rights knows it. ok is false for servers and agents: their certificates say what
// they may do.
func (c caller) person() (who rights.Caller, ok bool) {
	return rights.Caller{Subject: c.Subject, Local: c.Kind == model.SubjectUID}, c.role() == pki.RoleCLI
}

// mayCall refuses a caller that may not call an operation on any object. If the operation's verb is about no object that
// has a name, that is the whole answer. Code: forbidden.
func (s *Server) mayCall(rt route, c caller) error {
	who, ok := c.person()
	if !ok {
		return nil
	}
	verb, listed := verbs[rt.id]
	if !listed {
		return model.Refuse(model.CodeForbidden, "%s has no verb, so nobody may call it", rt.id)
	}
	if verb == noRight || s.book().MayAny(who, verb) {
		return nil
	}
	return refusedRight(c, verb, rights.Object{})
}

// mayDo refuses a caller that may not call an operation on one of the objects. Code: forbidden.
func (s *Server) mayDo(state *fsm.State, rt route, c caller, on ...rights.Object) error {
	who, ok := c.person()
	verb := verbs[rt.id]
	if !ok || verb == noRight {
		return nil
	}
	book := s.books.of(state)
	for _, o := range on {
		if _, may := book.May(who, verb, o); !may {
			return refusedRight(c, verb, o)
		}
	}
	return nil
}

func (s *Server) book() *rights.Book { return s.books.of(s.cfg.Store.Current()) }

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
func (s *Server) mayWrite(r *reading, rt route, c caller, commands []fsm.Command) error {
	who, ok := c.person()
	if !ok {
		return nil
	}
	book := s.books.of(&r.State)
	for _, one := range commands {
		verb := verbs[rt.id]
		switch cmd := one.(type) {
		case *fsm.NewcomerApprove:
			verb = approveVerb(cmd.Newcomer)
		case *fsm.NewcomerReject:
			verb = approveVerb(cmd.Newcomer)
		case *fsm.JobSubmit:
			if err := mayRunAs(book, who, c, cmd.Spec); err != nil {
				return err
			}
		}
		for _, o := range commandObjects(&r.State, one) {
			if _, may := book.May(who, verb, o); !may {
				return refusedRight(c, verb, o)
			}
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

// mayRunAs refuses a job whose programs run as users that the caller may not use. Code: forbidden.
func mayRunAs(book *rights.Book, who rights.Caller, c caller, spec model.JobSpec) error {
	on := specObject(spec)
	for _, g := range spec.Groups {
		if !book.MayRunAs(who, g.Exec.User, on) {
			return model.Refuse(model.CodeForbidden, "%s may not run programs of job %s as the user %q", c.Subject, spec.Name,
				clip(g.Exec.User)).
				WithHint("leave the user out, or ask an administrator for a role with users = [%q]", clip(g.Exec.User))
		}
	}
	return nil
}

func specObject(spec model.JobSpec) rights.Object {
	class := spec.Class
	if class == "" {
		class = model.ClassProduction
	}
	return rights.Object{Name: "job/" + string(spec.Name), Job: string(spec.Name), Class: string(class)}
}

// commandObjects returns what a command is about. It always returns one object at least.
func commandObjects(state *fsm.State, c fsm.Command) (all []rights.Object) {
	if submit, ok := c.(*fsm.JobSubmit); ok {
		all = append(all, specObject(submit.Spec)) // beside the job with its present class
	}
	for _, subject := range fsm.Objects(c) {
		all = append(all, objectsAt(state, subject)...)
	}
	if len(all) == 0 {
		all = append(all, rights.Object{})
	}
	return all
}

// objectsAt returns the objects that a subject of events stands for: a drain stands for its nodes. It returns nothing
// for a drain that does not exist.
func objectsAt(state *fsm.State, subject string) []rights.Object {
	kind, id, _ := strings.Cut(subject, "/")
	one := rights.Object{Name: subject}
	switch kind {
	case "node":
		return []rights.Object{nodeObject(state, model.NodeID(id))}
	case "job":
		return []rights.Object{jobObject(state, subject, model.JobName(id))}
	case "group":
		job, _ := model.GroupID(id).Split()
		return []rights.Object{jobObject(state, subject, job)}
	case "instance":
		if i, ok := state.Instances.Get(model.InstanceID(id)); ok {
			return []rights.Object{instanceObject(state, i)}
		}
	case "deployment":
		if d, ok := state.Deployments.Get(model.DeploymentID(id)); ok {
			return []rights.Object{jobObject(state, subject, d.Job)}
		}
	case "volume":
		return []rights.Object{volumeObject(state, model.VolumeID(id))}
	case "transfer":
		if t, ok := state.Transfers.Get(model.TransferID(id)); ok {
			job, _ := t.Group.Split()
			return []rights.Object{jobObject(state, subject, job)}
		}
	case "backup":
		if b, ok := state.Backups.Get(model.BackupID(id)); ok {
			job, _ := b.Group.Split()
			return []rights.Object{jobObject(state, subject, job)}
		}
	case "drain":
		d, _ := state.Drains.Get(model.DrainID(id))
		return drainObjects(state, d)
	case "class":
		one.Class = id
	case "member":
		if who, ok := model.ParseSubject(id); ok && who.Kind == model.SubjectAgent {
			one.Node = who.Name
		}
	}
	return []rights.Object{one}
}

func nodeObject(state *fsm.State, ref model.NodeID) rights.Object {
	name := string(ref)
	if n, refusal := state.FindNode(name); refusal == nil {
		name = n.Name
	}
	return rights.Object{Name: "node/" + name, Node: name}
}

func jobObject(state *fsm.State, subject string, name model.JobName) rights.Object {
	o := rights.Object{Name: subject, Job: string(name)}
	if j, ok := state.Jobs.Get(name); ok {
		o.Class = string(j.Class)
	}
	return o
}

func instanceObject(state *fsm.State, i *fsm.Instance) rights.Object {
	job, _ := i.Group.Split()
	o := jobObject(state, "instance/"+string(i.ID), job)
	o.Node = nodeObject(state, i.Node).Node
	return o
}

func volumeObject(state *fsm.State, id model.VolumeID) rights.Object {
	job, _, _ := strings.Cut(string(id), "/")
	return jobObject(state, "volume/"+string(id), model.JobName(job))
}

func drainObjects(state *fsm.State, d *fsm.Drain) (all []rights.Object) {
	if d == nil {
		return nil
	}
	for _, n := range d.Nodes {
		all = append(all, nodeObject(state, n.Node))
	}
	return all
}

// answerObjects returns what an answer of a read is about. An answer that is about no single job or node has one object
// without names, so whoever may see only some jobs or nodes does not see it.
func answerObjects(state *fsm.State, answer any) []rights.Object {
	job := func(name model.JobName) []rights.Object {
		return []rights.Object{jobObject(state, "job/"+string(name), name)}
	}
	switch v := answer.(type) {
	case api.Node:
		return []rights.Object{{Name: "node/" + v.Name, Node: v.Name}}
	case api.Drain:
		var all []rights.Object
		for _, n := range v.Nodes {
			all = append(all, rights.Object{Name: "node/" + n.Node, Node: n.Node})
		}
		return all
	case api.Job:
		return job(v.Name)
	case api.JobDetail:
		return job(v.Name)
	case api.JobVersion:
		return job(v.Job)
	case api.JobPlan:
		return job(v.Job)
	case api.Deployment:
		return job(v.Job)
	case api.Instance:
		o := jobObject(state, "instance/"+string(v.ID), v.Job)
		o.Node = v.Node
		return []rights.Object{o}
	case api.Service:
		name, _ := v.Group.Split()
		return job(name)
	case api.Volume:
		return []rights.Object{volumeObject(state, v.ID)}
	case api.VolumeDetail:
		return []rights.Object{volumeObject(state, v.ID)}
	case api.Transfer:
		return []rights.Object{volumeObject(state, v.Volume)}
	case api.Backup:
		return []rights.Object{volumeObject(state, v.Volume)}
	case api.ClassView:
		return []rights.Object{{Name: "class/" + string(v.Name), Class: string(v.Name)}}
	}
	return []rights.Object{{}}
}

// mayRead refuses a caller that may not read the answer of a read. Lists leave out what the caller may not read instead;
// see hides. Code: forbidden.
func (s *Server) mayRead(ctx context.Context, r *reading, rt route, answer any) error {
	c := callerFrom(ctx)
	if why, ok := answer.(api.Why); ok {
		return s.mayExplain(&r.State, c, why.Subject)
	}
	if _, ok := answer.(interface{ partial() }); ok {
		return s.mayCall(rt, c) // again, because a blocking read may have waited
	}
	return s.mayDo(&r.State, rt, c, answerObjects(&r.State, answer)...)
}

// hides returns the function that says whether a list leaves an item out because the caller may not read it.
func (s *Server) hides(ctx context.Context, r *reading, rt route) func(item any) bool {
	c := callerFrom(ctx)
	if _, ok := c.person(); !ok || c.Kind == model.SubjectUID {
		return func(any) bool { return false }
	}
	return func(item any) bool { return s.mayDo(&r.State, rt, c, answerObjects(&r.State, item)...) != nil }
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

// mayExplain refuses a caller that may not see what an explanation is about. Code: forbidden.
func (s *Server) mayExplain(state *fsm.State, c caller, subject string) error {
	who, ok := c.person()
	if !ok {
		return nil
	}
	verb, book := explainVerb(subject), s.books.of(state)
	for _, o := range objectsAt(state, subject) {
		if _, may := book.May(who, verb, o); !may {
			return refusedRight(c, verb, o)
		}
	}
	return nil
}

// whileReadable returns the context of a stream about one object, as whileAllowed. It refuses a caller that may not read
// the stream. The caller must call cancel unless there is an error. Code: forbidden.
func (s *Server) whileReadable(ctx context.Context, operation string, on rights.Object) (_ context.Context,
	cancel context.CancelFunc, _ error) {
	c := callerFrom(ctx)
	may := func(state *fsm.State) error { return s.mayDo(state, route{id: operation}, c, on) }
	if err := may(s.cfg.Store.Current()); err != nil {
		return nil, nil, err
	}
	ctx, cancel = s.whileAllowed(ctx, c, may)
	return ctx, cancel, nil
}

// whileAllowed returns the context of a stream. It is canceled within a second after the caller has lost the right to
// read it. The caller must call cancel once the stream has ended.
func (s *Server) whileAllowed(ctx context.Context, c caller, may func(*fsm.State) error) (_ context.Context, cancel func()) {
	if _, ok := c.person(); !ok {
		return ctx, func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		for {
			woken, leave := s.cfg.Store.WatchTopic("rights")
			if may(s.cfg.Store.Current()) != nil {
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
	return ctx, stop
}
