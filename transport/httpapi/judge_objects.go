package httpapi

import (
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// commandObjects returns what a command is about. It always returns one object at least.
func commandObjects(state *fsm.State, c fsm.Command) (all []rights.Object) {
	submit, isSubmit := c.(*fsm.JobSubmit)
	if isSubmit {
		all = append(all, specObject(submit.Spec))
		if !state.Jobs.Has(submit.Spec.Name) {
			return all
		}
	}
	// A DrainStart has the nodes as the caller wrote them. Their real names may be hidden from the caller, so the objects
	// keep the caller's words.
	_, unresolved := c.(*fsm.DrainStart)
	for _, subject := range fsm.Objects(c) { // for a job that exists, this adds the object with its present class
		for _, o := range objectsAt(state, subject) {
			if !unresolved && strings.HasPrefix(o.Name, "node/") {
				o.Name = "node/" + o.Node
			}
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		all = append(all, rights.Object{})
	}
	return all
}

// objectsAt returns the objects that a subject of events stands for: a drain stands for its nodes. It returns nothing
// for an instance, a deployment, a drain, a transfer or a backup that does not exist.
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
		return nil
	case "deployment":
		if d, ok := state.Deployments.Get(model.DeploymentID(id)); ok {
			return []rights.Object{jobObject(state, subject, d.Job)}
		}
		return nil
	case "volume":
		return []rights.Object{volumeObject(state, model.VolumeID(id))}
	case "transfer":
		if t, ok := state.Transfers.Get(model.TransferID(id)); ok {
			job, _ := t.Group.Split()
			o := jobObject(state, subject, job)
			o.Node = nodeObject(state, t.From).Node
			return []rights.Object{o}
		}
		return nil
	case "backup":
		if b, ok := state.Backups.Get(model.BackupID(id)); ok {
			job, _ := b.Group.Split()
			o := jobObject(state, subject, job)
			o.Node = nodeObject(state, b.Node).Node
			return []rights.Object{o}
		}
		return nil
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

// nodeObject returns the object of a node by its name or id. Its Name is as the caller wrote it.
func nodeObject(state *fsm.State, ref model.NodeID) rights.Object {
	o := rights.Object{Name: "node/" + string(ref), Node: string(ref)}
	if n, ok := state.NodeCalled(string(ref)); ok {
		o.Node = n.Name
	}
	return o
}

func jobObject(state *fsm.State, subject string, name model.JobName) rights.Object {
	o := rights.Object{Name: subject, Job: string(name), Class: string(model.ClassProduction)} // the class of a new job
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
	o := jobObject(state, "volume/"+string(id), model.JobName(job))
	if v, ok := state.Volumes.Get(id); ok {
		o.Node = nodeObject(state, v.Home).Node
	}
	return o
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

// rollObjects returns the nodes that a roll names, which need not exist.
func rollObjects(state *fsm.State, roll *model.Roll) (all []rights.Object) {
	if roll == nil {
		return nil
	}
	for _, name := range roll.Nodes {
		all = append(all, nodeObject(state, model.NodeID(name)))
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
	case api.JobFile:
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
		return objectsAt(state, "transfer/"+string(v.ID))
	case api.Backup:
		return objectsAt(state, "backup/"+string(v.ID))
	case api.ClassView:
		return []rights.Object{{Name: "class/" + string(v.Name), Class: string(v.Name)}}
	}
	return []rights.Object{{}}
}
