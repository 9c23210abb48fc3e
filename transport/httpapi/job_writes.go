package httpapi

import (
	"cmp"
	"context"
	"strconv"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

type submitInput struct {
	WriteParams
	IfIndex string `query:"if_index" pattern:"^[0-9]*$" doc:"refuse unless the job is at this index; 0: unless there is none of this name"`
	Input   api.SubmitBody
}

func (in *submitInput) body() any { return &in.Input }

// JobWrite has the parameters of a write to one job.
type JobWrite struct {
	WriteParams
	JobPath
}

type scaleInput struct {
	JobWrite
	Input api.ScaleBody
}

func (in *scaleInput) body() any { return &in.Input }

type stopInput struct {
	JobWrite
	Input api.StopBody
}

func (in *stopInput) body() any { return &in.Input }

type restartInput struct {
	JobWrite
	Input api.RestartBody
}

func (in *restartInput) body() any { return &in.Input }

func (s *Server) jobWrites() []operation {
	return []operation{
		write(s, route{id: "submit-job", path: "/v1/jobs", tag: "jobs", summary: "Make a spec the wanted state of a job"},
			s.submitJob()),
		ask(s,
			route{id: "validate-job", path: "/v1/jobs/validate", tag: "jobs",
				summary: "Check a spec and show it with all defaults"}, (*validateInput).command, validateJob),
		ask(s,
			route{id: "parse-job", path: "/v1/jobs/parse", tag: "jobs",
				summary: "Read a job file: the spec that it stands for, or each mistake with its line"},
			(*parseInput).command, parseJob),
		ask(s, jobRoute("plan", "Show what a spec would change"), (*planInput).command, s.planJob),
		write(s, jobRoute("scale", "Change the count of a group"), scaleJob()),
		write(s, jobRoute("stop", "Stop every instance of a job"), stopJob()),
		write(s, jobRoute("restart", "Roll every instance to a new version of the same spec"), restartJob()),
		write(s, jobRoute("revert", "Make an earlier version the wanted state again"), revertJob()),
	}
}

func jobRoute(verb, summary string) route {
	return route{id: verb + "-job", path: "/v1/jobs/{name}/" + verb, tag: "jobs", summary: summary}
}

func (s *Server) submitJob() change[submitInput, api.JobReply] {
	return change[submitInput, api.JobReply]{
		prepare: func(_ *reading, in *submitInput) ([]fsm.Command, error) {
			expanded := in.Input.Job.Expand()
			if refusal := expanded.CheckNew(); refusal != nil { // the command checks the rest
				return nil, refusal
			}
			c := &fsm.JobSubmit{Spec: in.Input.Job, Message: in.Input.Message}
			if in.IfIndex != "" {
				index, err := strconv.ParseUint(in.IfIndex, 10, 64)
				if err != nil {
					return nil, model.Refuse(model.CodeInvalid, "if_index is not a log index")
				}
				c.IfIndex = &index
			}
			return []fsm.Command{c}, nil
		},
		consult: func(ctx context.Context, r *reading, in *submitInput, commands []fsm.Command) (bool, error) {
			submit, ok := commands[0].(*fsm.JobSubmit)
			if !ok {
				return false, nil
			}
			q := imageQuestion{s: s, r: r, keep: in.Input.KeepImages}
			var err error
			submit.Spec, err = q.resolve(ctx, submit.Spec)
			return q.asked, err
		},
		answer: func(o *outcome, in *submitInput) (api.JobReply, error) {
			reply, err := o.jobReply(in.Input.Job.Name)
			if j, ok := o.Jobs.Get(in.Input.Job.Name); ok {
				if v, ok := o.JobVersion(j.Name, j.Version); ok {
					reply.Images = imagesOf(v.Spec)
				}
			}
			return reply, err
		},
	}
}

// jobReply returns the answer to a write to a job. The answer contains the job if the job still exists.
func (o *outcome) jobReply(name model.JobName) (api.JobReply, error) {
	reply := api.JobReply{Written: o.Written}
	j, ok := o.Jobs.Get(name)
	if !ok {
		return reply, nil
	}
	written := o.Written.Index
	if o.DryRun {
		written = j.Index // a row that the draft changed has the index of the next entry
	}
	reply.Changed = j.Index >= written && (!o.DryRun || j.Index > o.Written.Index)
	o.undecided = reply.Changed && !o.DryRun
	v := o.job(j)
	reply.Job = &v
	if d, ok := o.Deployments.Get(model.NewDeploymentID(j.Name, j.Version)); ok && reply.Changed {
		if first, ok := o.JobVersion(j.Name, j.Version); ok && first.Index >= o.Written.Index {
			reply.DeploymentID = d.ID
		}
	}
	return reply, nil
}

// onJob returns the functions of a write that changes one job by one command.
func onJob[I any](ref func(*I) string,
	command func(*reading, *fsm.Job, *I) (fsm.Command, error)) change[I, api.JobReply] {
	return change[I, api.JobReply]{
		prepare: func(r *reading, in *I) ([]fsm.Command, error) {
			j, refusal := r.NamedJob(ref(in))
			if refusal != nil {
				return nil, refusal
			}
			c, err := command(r, j, in)
			return []fsm.Command{c}, err
		},
		answer: func(o *outcome, in *I) (api.JobReply, error) {
			if j, refusal := o.NamedJob(ref(in)); refusal == nil {
				return o.jobReply(j.Name)
			}
			return api.JobReply{Written: o.Written, Changed: true}, nil
		},
	}
}

func (in *scaleInput) ref() string   { return in.Name }
func (in *stopInput) ref() string    { return in.Name }
func (in *restartInput) ref() string { return in.Name }

func scaleJob() change[scaleInput, api.JobReply] {
	return onJob((*scaleInput).ref, func(r *reading, j *fsm.Job, in *scaleInput) (fsm.Command, error) {
		if in.Input.Count == nil {
			return nil, model.Refuse(model.CodeInvalid, "count is missing").WithHint(`send {"group":"http","count":3}`)
		}
		group, err := r.onlyGroup(j, in.Input.Group)
		if err != nil {
			return nil, err
		}
		return &fsm.JobScale{Job: j.Name, Group: group, Count: *in.Input.Count}, nil
	})
}

// onlyGroup returns name. If name is empty, it returns the name of the job's only group. Code: invalid if name is empty
// and the job has several groups.
func (r *reading) onlyGroup(j *fsm.Job, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	v, ok := r.JobVersion(j.Name, j.Version)
	if !ok || len(v.Spec.Groups) != 1 {
		return "", model.Refuse(model.CodeInvalid, "job %s has more than one group", j.Name).WithHint("name the group")
	}
	return v.Spec.Groups[0].Name, nil
}

func stopJob() change[stopInput, api.JobReply] {
	return onJob((*stopInput).ref, func(_ *reading, j *fsm.Job, in *stopInput) (fsm.Command, error) {
		return &fsm.JobStop{Job: j.Name, Purge: in.Input.Purge}, nil
	})
}

func restartJob() change[restartInput, api.JobReply] {
	return onJob((*restartInput).ref, func(_ *reading, j *fsm.Job, in *restartInput) (fsm.Command, error) {
		return &fsm.JobRestart{Job: j.Name, Group: in.Input.Group}, nil
	})
}

type validateInput struct {
	AskParams
	Input api.SubmitBody
}

func (in *validateInput) body() any { return &in.Input }

func (in *validateInput) command() fsm.Command { return &fsm.JobSubmit{Spec: in.Input.Job} }

func validateJob(_ context.Context, r *reading, in *validateInput) (api.JobValidation, error) {
	spec := in.Input.Job.Expand()
	if refusal := cmp.Or(spec.Check(), spec.CheckNew()); refusal != nil {
		return api.JobValidation{}, refusal
	}
	draft := r.NewDraft(r.now)
	if refusal := draft.Try(&fsm.JobSubmit{Spec: asIfResolved(in.Input.Job)}); refusal != nil {
		return api.JobValidation{}, refusal
	}
	v := api.JobValidation{Job: spec, Warnings: in.Input.Job.Warnings(), Budgets: []model.BudgetLine{}}
	for i := range spec.Groups {
		v.Budgets = append(v.Budgets, draft.State().BudgetLines(model.NewGroupID(spec.Name, spec.Groups[i].Name))...)
	}
	return v, nil
}
