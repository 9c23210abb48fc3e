package httpapi

import (
	"slices"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

type revertInput struct {
	JobWrite
	Input api.RevertBody

	secret bool // by prepare: the caller may not read the spec
}

func (in *revertInput) body() any { return &in.Input }

func (in *revertInput) ref() string { return in.Name }

func revertJob() change[revertInput, api.RevertReply] {
	to := onJob((*revertInput).ref, func(r *reading, j *fsm.Job, in *revertInput) (fsm.Command, error) {
		version, ifVersion := in.Input.Version, in.Input.IfVersion
		if version == 0 {
			target, refusal := r.RevertTarget(j)
			if refusal != nil {
				return nil, refusal
			}
			version = target
			if ifVersion == 0 {
				ifVersion = j.Version // RevertTarget depends on the current version
			}
		}
		if _, ok := r.JobVersion(j.Name, version); !ok { // what a version asks for must be judged before it is run
			return nil, model.Refuse(model.CodeNotFound, "job %s has no version %d", j.Name, version).
				WithHint("list them with: outspan job history %s", j.Name)
		}
		return &fsm.JobRevert{
			Job: j.Name, Version: version, IfVersion: ifVersion, Message: in.Input.Message, CurrentCounts: !in.Input.Counts,
		}, nil
	})
	return change[revertInput, api.RevertReply]{
		prepare: func(r *reading, in *revertInput) ([]fsm.Command, error) {
			in.secret = !r.reads("job/" + in.Name)
			return to.prepare(r, in)
		},
		answer: func(o *outcome, in *revertInput) (api.RevertReply, error) {
			plain, err := to.answer(o, in)
			reply := api.RevertReply{JobReply: plain}
			for _, c := range o.commands {
				if c, ok := c.(*fsm.JobRevert); ok {
					reply.RevertedTo = c.Version
				}
			}
			v, ok := o.JobVersion(model.JobName(in.Name), o.currentVersion(in.Name))
			if !ok {
				return reply, err
			}
			if o.DryRun && !in.secret {
				reply.Spec = &v.Spec
			}
			if !in.Input.Counts && v.Reverts == reply.RevertedTo && o.countsChanged(v) {
				reply.Note = v.Message
			}
			return reply, err
		},
	}
}

// currentVersion returns the current version of a job, or 0 if there is no job of this name.
func (r *reading) currentVersion(name string) uint64 {
	if j, ok := r.Jobs.Get(model.JobName(name)); ok {
		return j.Version
	}
	return 0
}

// countsChanged reports whether a group has a different count in v than in the version before v. It ignores groups that
// only one of the two versions has.
func (r *reading) countsChanged(v *fsm.JobVersion) bool {
	before, ok := r.JobVersion(v.Job, v.Version-1)
	if !ok {
		return false
	}
	counts := map[string]int{}
	for i := range before.Spec.Groups {
		counts[before.Spec.Groups[i].Name] = before.Spec.Groups[i].Count
	}
	return slices.ContainsFunc(v.Spec.Groups, func(g model.GroupSpec) bool {
		n, ok := counts[g.Name]
		return ok && n != g.Count
	})
}
