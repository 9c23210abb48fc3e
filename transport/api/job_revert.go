package api

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

type revertInput struct {
	JobWrite
	Input revertBody
}

type revertBody struct {
	Version   uint64 `json:"version" doc:"0: the newest one that completed its rollout and differs from the current one in more than counts"`
	IfVersion uint64 `json:"if_version,omitempty" doc:"refuse unless this is the current version"`
	Counts    bool   `json:"counts,omitempty" doc:"take the counts of that version too; otherwise every group keeps the count that it has now"`
	Message   string `json:"message,omitempty" maxLength:"256"`
}

func (in *revertInput) body() any { return &in.Input }

func (in *revertInput) ref() string { return in.Name }

// RevertReply is the answer to a revert.
type RevertReply struct {
	JobReply
	Spec *model.JobSpec `json:"spec,omitempty" doc:"of a dry run: what would be the wanted state"`
}

func revertJob() change[revertInput, RevertReply] {
	to := onJob((*revertInput).ref, func(r *reading, j *fsm.Job, in *revertInput) (fsm.Command, error) {
		version, ifVersion := in.Input.Version, in.Input.IfVersion
		if version == 0 {
			target, ok := r.RevertTarget(j)
			if !ok {
				return nil, model.Refuse(model.CodeNotFound, "job %s has no earlier version that completed its rollout and differs from the current one", j.Name).
					WithHint("name a version: outspan job history %s lists them", j.Name)
			}
			version = target
			if ifVersion == 0 {
				ifVersion = j.Version // the target was chosen from its point of view
			}
		}
		return &fsm.JobRevert{
			Job: j.Name, Version: version, IfVersion: ifVersion, Message: in.Input.Message, CurrentCounts: !in.Input.Counts,
		}, nil
	})
	return change[revertInput, RevertReply]{
		prepare: to.prepare,
		answer: func(o *outcome, in *revertInput) (RevertReply, error) {
			plain, err := to.answer(o, in)
			reply := RevertReply{JobReply: plain}
			for _, c := range o.commands {
				if c, ok := c.(*fsm.JobRevert); ok {
					reply.RevertedTo = c.Version
				}
			}
			if v, ok := o.JobVersion(model.JobName(in.Name), o.currentVersion(in.Name)); ok && o.DryRun {
				reply.Spec = &v.Spec
			}
			return reply, err
		},
	}
}

// currentVersion is the current version of a job; 0 if there is none of this name.
func (r *reading) currentVersion(name string) uint64 {
	if j, ok := r.Jobs.Get(model.JobName(name)); ok {
		return j.Version
	}
	return 0
}
