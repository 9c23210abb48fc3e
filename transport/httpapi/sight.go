package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// maxKnown bounds how many callers books remembers.
const maxKnown = 200

// books caches the book of the state that was asked for last, and what callers may do by that book. It is safe for
// concurrent use.
type books struct {
	mu    sync.Mutex
	index uint64
	book  *rights.Book
	known map[string]*rights.Permissions
}

// of returns the book of a state.
func (b *books) of(state *fsm.State) *rights.Book {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ofLocked(state)
}

func (b *books) ofLocked(state *fsm.State) *rights.Book {
	if b.book == nil || b.index != state.RightsIndex {
		b.book, b.index, b.known = state.RightsBook(), state.RightsIndex, map[string]*rights.Permissions{}
	}
	return b.book
}

// permissions returns what a caller may do by the rights of a state.
func (b *books) permissions(state *fsm.State, who rights.Caller) *rights.Permissions {
	key := fmt.Sprintf("%q %q %q %v %v", who.Subject.String(), who.Groups, who.Roles, who.Roles == nil, who.Local)
	b.mu.Lock()
	defer b.mu.Unlock()
	book := b.ofLocked(state)
	p, ok := b.known[key]
	if !ok {
		if len(b.known) >= maxKnown {
			clear(b.known)
		}
		p = book.For(who)
		b.known[key] = p
	}
	return p
}

// lookAs limits what a reading finds by name to what the caller may see: what it may read, what it may call the
// operation for, and the jobs and nodes of instances that it may read. It returns the reading.
func (j *judge) lookAs(r *reading, rt route, c caller) *reading {
	r.Finder = r.State.Finder(j.sight(&r.State, c, verbs[rt.id]))
	r.veil = j.veil(&r.State, c, verbs[rt.id])
	r.reads = func(subject string) bool {
		kind, _, _ := strings.Cut(subject, "/")
		return j.mayDo(&r.State, c, readVerbs[kind], objectsAt(&r.State, subject)...) == nil
	}
	r.drains = j.drains(r, c)
	return r
}

// drains returns the function that reports whether a caller may drain all nodes of a roll. It judges each node once,
// because each drain of a roll names all of its nodes. It is for one goroutine.
func (j *judge) drains(r *reading, c caller) func(roll *model.Roll) bool {
	known := map[string]bool{}
	return func(roll *model.Roll) bool {
		return !slices.ContainsFunc(roll.Nodes, func(name string) bool {
			may, judged := known[name]
			if !judged {
				may = j.mayDo(&r.State, c, "node.drain", nodeObject(&r.State, model.NodeID(name))) == nil
				known[name] = may
			}
			return !may
		})
	}
}

// pin adds conditions to commands about jobs: a job's class, and what the version of a revert asks for, must not change
// between the check of the caller's rights and the Apply. Otherwise the command is refused as stale. If no list
// restricts the caller, pin adds nothing.
func (j *judge) pin(r *reading, rt route, c caller, commands []fsm.Command) {
	who, ok := c.person(&r.State)
	if !ok {
		return
	}
	p := j.books.permissions(&r.State, who)
	class := func(name model.JobName) model.ClassName {
		if job, ok := r.Jobs.Get(name); ok {
			return job.Class
		}
		return ""
	}
	for _, one := range commands {
		verb := verbs[rt.id]
		if revert, ok := one.(*fsm.JobRevert); ok { // a failed deployment reverts its job too; see mayWrite
			verb = rights.SubmitJob
			if v, ok := r.JobVersion(revert.Job, revert.Version); ok && !p.AsksFreely() {
				revert.IfTarget = v.Index
			}
		}
		if p.Reach(verb) == rights.Everything {
			continue
		}
		switch cmd := one.(type) {
		case *fsm.JobSubmit:
			if cmd.IfClass = class(cmd.Spec.Name); cmd.IfClass == "" && cmd.IfIndex == nil {
				cmd.IfIndex = new(uint64) // the job must not exist
			}
		case *fsm.JobScale:
			cmd.IfClass = class(cmd.Job)
		case *fsm.JobStop:
			cmd.IfClass = class(cmd.Job)
		case *fsm.JobRestart:
			cmd.IfClass = class(cmd.Job)
		case *fsm.JobRevert:
			cmd.IfClass = class(cmd.Job)
		}
	}
}

// readVerbs has the verb that a caller needs to read an object, by the kind of its subject.
var readVerbs = map[string]rights.Verb{
	"node": "node.read", "drain": "node.read", "job": "job.read", "group": "job.read", "deployment": "job.read",
	"instance": "instance.read", "volume": "volume.read", "transfer": "volume.read", "backup": "volume.read",
	"class": "class.read",
}

// sight returns the function that reports whether a caller of an operation with this verb may see an object. It is nil
// if the caller may see everything.
func (j *judge) sight(state *fsm.State, c caller, verb rights.Verb) func(subject string) bool {
	who, ok := c.person(state)
	if !ok {
		return nil
	}
	p := j.books.permissions(state, who)
	all := true
	for _, read := range readVerbs {
		all = all && p.Reach(read) == rights.Everything
	}
	if all {
		return nil
	}
	reads := func(i *fsm.Instance) bool {
		_, may := p.May("instance.read", instanceObject(state, i))
		return may
	}
	return func(subject string) bool {
		kind, id, _ := strings.Cut(subject, "/")
		on := objectsAt(state, subject)
		if n, h, unknown := state.UnknownOn(model.InstanceID(id)); kind == "instance" && unknown && len(on) == 0 {
			job, _ := h.Group.Split()
			one := jobObject(state, subject, job)
			one.Node = n.Name
			on = append(on, one)
		}
		if mayAll(p, readVerbs[kind], on) || mayAll(p, verb, on) {
			return true
		}
		switch kind {
		case "job":
			for group := range state.GroupsOf(model.JobName(id)) {
				for i := range state.InstancesOf(group) {
					if reads(i) {
						return true
					}
				}
			}
		case "node":
			n, ok := state.NodeCalled(id)
			return ok && slices.ContainsFunc(slices.Collect(state.InstancesOn(n.ID)), reads)
		}
		return false
	}
}

// mayAll reports whether a caller has the verb on each of the objects. If there are no objects, the caller needs the
// verb on everything.
func mayAll(p *rights.Permissions, verb rights.Verb, on []rights.Object) bool {
	if len(on) == 0 {
		on = []rights.Object{{}}
	}
	return !slices.ContainsFunc(on, func(o rights.Object) bool {
		_, may := p.May(verb, o)
		return !may
	})
}
