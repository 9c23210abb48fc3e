package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func (r *reading) instance(i *fsm.Instance) api.Instance {
	job, group := i.Group.Split()
	v := api.Instance{
		ID: i.ID, Job: job, Group: group, Slot: i.Slot, Node: r.nodeName(i.Node), NodeID: i.Node, Desired: i.Desired,
		Observed: i.Status.Observed, Ready: i.Ready(), Reason: i.Status.Reason, Cause: i.Cause, StopCause: i.Marks.StopCause,
		Member: r.member(i), Replaces: i.Links.Replaces, ReplacedBy: i.Links.ReplacedBy, Version: i.Version,
		Class: i.ClassOf(), ExitCode: i.Status.ExitCode,
		Restarts: i.Status.Restarts, Ports: i.Claims.Ports.Map(), Deployment: i.Links.Deployment,
		Resources: api.InstanceResources{CPU: i.Claims.Resources.CPU, MemoryBytes: i.Claims.Resources.MemoryBytes},
		Awaits:    veiledAll(r.veil, i.Links.Awaits),
		Eviction:  r.eviction(i), Facts: api.Facts(r.OwnFacts(i)), CreatedAt: wallTime(i.Marks.CreatedWall),
		StartedAt: wallTimeOrNil(i.Marks.StartedWall), Index: i.Marks.ChangedIndex,
	}
	if v.Reason == "" && i.Desired != model.DesiredRunning {
		v.Reason = r.veil.text(i.Marks.StopReason) // after a preemption, the instance that took the place
	}
	v.Disk = r.disk(i)
	if n, ok := r.Nodes.Get(i.Node); ok {
		v.Address = n.Agent.Address
	}
	if spec, ok := r.Spec(i.Group, i.Version); ok {
		var names []string
		for _, volume := range spec.Volumes {
			names = append(names, volume.Name)
		}
		v.Volume = strings.Join(names, ",")
	}
	return v
}

func (r *reading) eviction(i *fsm.Instance) api.Eviction {
	v := api.Eviction{
		Requested: i.Eviction.Requested, Cause: i.Eviction.Cause, By: i.Eviction.By, WaitingFor: []model.Code{},
		Preparing: i.Eviction.Preparing, Surge: i.Eviction.Surge, Failure: i.Eviction.Failure,
	}
	if i.Eviction.Requested && i.Desired == model.DesiredRunning {
		for _, b := range r.waiting().Instances[i.ID] {
			v.WaitingFor = append(v.WaitingFor, b.Code)
		}
	}
	return v
}

// endpoint returns the host:port of an instance's port. It returns false if the instance has no such port, or if its
// node is no longer in the state.
func (r *reading) endpoint(i *fsm.Instance, port string) (string, bool) {
	n, ok := r.Nodes.Get(i.Node)
	number, has := i.Claims.Ports.Get(port)
	if !ok || !has {
		return "", false
	}
	return net.JoinHostPort(n.Agent.Address, strconv.Itoa(number)), true
}

// InstancePath is the part of a path that names an instance.
type InstancePath struct {
	ID string `path:"id" doc:"id or unique prefix of it; a write takes at least 6 characters"`
}

type instanceList struct {
	ListParams
	Job   string `query:"job" doc:"of this job only"`
	Group string `query:"group" doc:"with job: of this group only"`
	Node  string `query:"node" doc:"on this node only"`
	All   bool   `query:"all" doc:"also those that ended"`
}

func (in *instanceList) narrowed() bool { return in.Job+in.Group+in.Node != "" }

type instanceRead struct {
	ReadParams
	InstancePath
}

type instanceWrite struct {
	WriteParams
	InstancePath
}

func (in *instanceWrite) ref() string { return in.ID }

func (s *Server) instanceOperations() []operation {
	return []operation{
		list(s, getRoute("list-instances", "/v1/instances", "instances", "List instances"),
			listing[instanceList, api.Instance]{
				topics: instanceListTopics, rows: listInstances,
			}),
		read(s, getRoute("get-instance", "/v1/instances/{id}", "instances", "Show an instance"),
			instanceTopics, showInstance),
		read(s, getRoute("why-instance", "/v1/instances/{id}/why", "instances", "Explain an instance"),
			instanceTopics, whyInstance),
		read(s, getRoute("why", "/v1/why", "status", "Explain any object"), func(*reading, *whyRead) []fsm.Topic {
			return []fsm.Topic{"events"}
		}, s.why),
		write(s,
			instanceRoute("evict",
				"Stop an instance if its budget allows it; it is replaced. "+
					"A replica is stopped once its copy is in sync elsewhere"),
			evictReplica(evictInstance())),
		write(s, instanceRoute("stop", "Stop an instance, even a replica, if its budget allows it; it is replaced"),
			evictInstance()),
		write(s, instanceRoute("restart", "Restart the program in place"), restartInstance()),
	}
}

func instanceRoute(verb, summary string) route {
	return route{id: verb + "-instance", path: "/v1/instances/{id}/" + verb, tag: "instances", summary: summary}
}

func instanceListTopics(r *reading, in *instanceList) []fsm.Topic {
	if in.Job == "" {
		return []fsm.Topic{"instances"}
	}
	return append(jobTopics(r, &jobRead{JobPath: JobPath{Name: in.Job}}), "instances")
}

func instanceTopics(r *reading, in *instanceRead) []fsm.Topic {
	if i, refusal := r.FindInstance(in.ID); refusal == nil {
		return []fsm.Topic{"instance/" + fsm.Topic(i.ID)}
	}
	return []fsm.Topic{"instances"}
}

// listInstances yields the matching instances in order of id.
func listInstances(r *reading, in *instanceList, from string, yield func(string, api.Instance) bool) error {
	keep, err := r.instanceScope(in)
	if err != nil {
		return err
	}
	for id, i := range r.Instances.From(model.InstanceID(from)) {
		if !keep(i) || !in.All && i.Terminal() {
			continue
		}
		if !yield(string(id), r.instance(i)) {
			return nil
		}
	}
	return nil
}

func (r *reading) instanceScope(in *instanceList) (func(*fsm.Instance) bool, error) {
	var node model.NodeID
	if in.Node != "" {
		n, refusal := r.FindNode(in.Node)
		if refusal != nil {
			return nil, refusal
		}
		node = n.ID
	}
	var job model.JobName
	if in.Job != "" {
		j, refusal := r.FindJob(in.Job)
		if refusal != nil {
			return nil, refusal
		}
		job = j.Name
	}
	return func(i *fsm.Instance) bool {
		ofJob, group := i.Group.Split()
		return (node == "" || i.Node == node) && (job == "" || ofJob == job) && (in.Group == "" || group == in.Group)
	}, nil
}

func showInstance(_ context.Context, r *reading, in *instanceRead) (api.Instance, error) {
	i, refusal := r.FindInstance(in.ID)
	if refusal != nil {
		return api.Instance{}, refusal
	}
	return r.instance(i), nil
}

// onInstance returns the functions of a write that changes one instance by one command.
func onInstance[I any](ref func(*I) string, command func(*fsm.Instance, *I) fsm.Command) change[I, api.InstanceReply] {
	return change[I, api.InstanceReply]{
		prepare: func(r *reading, in *I) ([]fsm.Command, error) {
			i, refusal := r.NamedInstance(ref(in))
			if refusal != nil {
				return nil, refusal
			}
			return []fsm.Command{command(i, in)}, nil
		},
		answer: func(o *outcome, in *I) (api.InstanceReply, error) {
			reply := api.InstanceReply{Written: o.Written}
			if i, refusal := o.NamedInstance(ref(in)); refusal == nil {
				v := o.instance(i)
				reply.Instance = &v
			}
			return reply, nil
		},
	}
}

type evictInput struct {
	WriteParams
	InstancePath
	Input      api.EvictBody
	endsAvoids bool // set by prepare: cancel lets the group use the avoided node again
}

func (in *evictInput) body() any { return &in.Input }

func (in *evictInput) ref() string { return in.ID }

// evictInstance returns the write that stops an instance. If the whole id is given, it also stops an instance that runs
// on a node but is not in the state. It refuses the options surge and cancel.
func evictInstance() change[evictInput, api.InstanceReply] {
	c := evictKnown()
	known := c.prepare
	c.prepare = func(r *reading, in *evictInput) ([]fsm.Command, error) {
		if in.Input.Surge {
			return nil, model.Refuse(model.CodeInvalid, "a stop waits for no replacement").
				WithHint("leave surge out, or evict the instance")
		}
		if in.Input.Cancel {
			return nil, model.Refuse(model.CodeInvalid, "a stop can't be taken back").
				WithHint("leave cancel out, or take back an eviction with: outspan instance evict %s --cancel", clip(in.ID))
		}
		if n, h, ok := r.UnknownOn(model.InstanceID(in.ID)); ok && !r.Instances.Has(h.ID) && r.Sees("instance/"+in.ID) {
			if r.Unconfirmed {
				return nil,
					model.Refuse(model.CodeRestoreUnconfirmed, "instance %s on node %s is not known, and the restore is not confirmed",
						h.ID, n.Name).
						WithHint("confirm it first: outspan settings resume restore")
			}
			return []fsm.Command{&fsm.InstanceStop{ID: h.ID, Cause: model.CauseUser, By: in.Input.Message}}, nil
		}
		return known(r, in)
	}
	plain := c.answer
	c.answer = func(o *outcome, in *evictInput) (api.InstanceReply, error) {
		reply, err := plain(o, in)
		if i, refusal := o.NamedInstance(in.ID); in.Input.Avoid && refusal == nil {
			until, _ := o.AvoidedOnRequest(i, o.now)
			reply.AvoidUntil = o.wallOf(until)
		}
		reply.AvoidEnded = in.endsAvoids
		return reply, err
	}
	return c
}

func evictKnown() change[evictInput, api.InstanceReply] {
	c := onInstance((*evictInput).ref, func(i *fsm.Instance, in *evictInput) fsm.Command {
		return &fsm.InstanceStop{
			ID: i.ID, Cause: model.CauseUser, By: in.Input.Message, Grace: in.Input.Grace,
			Bypass: in.Input.BypassBudget, Avoid: in.Input.Avoid,
		}
	})
	c.refused = func(r *reading, in *evictInput, p *api.Problem) {
		i, refusal := r.NamedInstance(in.ID)
		if refusal != nil || p.Code != model.CodeBudgetRate && p.Code != model.CodeActorRate {
			return
		}
		_, next := r.CheckBudget(i, model.CauseUser)
		p.NextAllowed = r.wallOf(next)
	}
	return c
}

// evictReplica extends c, a write that stops an instance, with evictions that take their time. A replica stops only
// after a copy was built on another node, unless the budget is bypassed. With the option surge, an instance that is no
// replica stops only after its replacement is ready. The option cancel withdraws such an eviction, or lets the group
// use an avoided node again.
func evictReplica(c change[evictInput, api.InstanceReply]) change[evictInput, api.InstanceReply] {
	stop, plain := c.prepare, c.refused
	c.refused = func(r *reading, in *evictInput, p *api.Problem) {
		plain(r, in, p)
		if i, refusal := r.NamedInstance(in.ID); refusal == nil && p.Code == model.CodeBudgetMinReady && r.ReplacesFirst(i) {
			p.Hint += fmt.Sprintf("; to have it replaced first: outspan instance evict %s --surge", i.ID)
		}
	}
	c.prepare = func(r *reading, in *evictInput) ([]fsm.Command, error) {
		i, refusal := r.NamedInstance(in.ID)
		if refusal != nil {
			return nil, refusal
		}
		_, replica := r.MemberOf(i)
		_, avoids := r.AvoidedOnRequest(i, r.now)
		switch {
		case in.Input.Cancel && avoids:
			in.endsAvoids = true
			return []fsm.Command{&fsm.InstanceMark{ID: i.ID, Avoid: true}}, nil
		case !replica && in.Input.Surge && in.Input.BypassBudget:
			return nil, model.Refuse(model.CodeInvalid, "a replacement that comes first needs no bypass of a budget").
				WithHint("give one of the two")
		case !replica && in.Input.Surge && !in.Input.Cancel:
			return []fsm.Command{&fsm.InstanceMark{
				ID: i.ID, Requested: true, Surge: true, Cause: model.CauseUser, By: cmp.Or(in.Input.Message, string(r.by.Actor())),
				Grace: in.Input.Grace, Avoid: in.Input.Avoid,
			}}, nil
		case !replica && in.Input.Cancel && !i.Eviction.Surge:
			return nil,
				model.Refuse(model.CodeInvalid,
					"no eviction of instance %s can be canceled: it is no replica, and was not evicted with surge", i.ID)
		case in.Input.Cancel && (!i.Eviction.Requested || i.Eviction.Cause != model.CauseUser):
			return nil, model.Refuse(model.CodeConflict, "nobody asked for the eviction of instance %s", i.ID).
				WithHint("see what moves it: outspan why %s", i.ID)
		case in.Input.Cancel:
			return []fsm.Command{&fsm.InstanceMark{ID: i.ID}}, nil
		case !replica || in.Input.BypassBudget:
			return stop(r, in)
		case in.Input.Grace != nil:
			return nil,
				model.Refuse(model.CodeInvalid,
					"instance %s is a replica: it stops when its copy is elsewhere, with its group's grace", i.ID).
					WithHint("leave the grace out, or stop it at once with: outspan instance stop %s", i.ID)
		}
		return []fsm.Command{&fsm.InstanceMark{
			ID: i.ID, Requested: true, Cause: model.CauseUser, By: string(r.by.Actor()), Avoid: in.Input.Avoid,
		}}, nil
	}
	return c
}

// restartInstance refuses a ready instance that its node could not start again: it would be stopped for nothing.
func restartInstance() change[instanceWrite, api.InstanceReply] {
	c := onInstance((*instanceWrite).ref, func(i *fsm.Instance, _ *instanceWrite) fsm.Command {
		return &fsm.InstanceRestart{ID: i.ID}
	})
	known := c.prepare
	c.prepare = func(r *reading, in *instanceWrite) ([]fsm.Command, error) {
		i, refusal := r.NamedInstance(in.ref())
		if refusal != nil || i.Desired != model.DesiredRunning || i.Status.Observed != model.ObservedReady {
			return known(r, in)
		}
		node, _ := r.Nodes.Get(i.Node)
		spec, has := r.Spec(i.Group, i.Version)
		if node == nil || !has {
			return known(r, in)
		}
		if refusal := node.Starts(spec); refusal != nil {
			return nil, model.Refuse(refusal.Code, "instance %s would be stopped and not started again: %s", i.ID,
				refusal.Message).WithHint("it goes on meanwhile; see: outspan node status %s", node.Name)
		}
		return known(r, in)
	}
	return c
}
