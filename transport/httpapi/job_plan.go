package httpapi

import (
	"cmp"
	"context"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/jobfile"
	"github.com/outspan/outspan/model"
)

type planInput struct {
	AskParams
	JobPath
	Input api.SubmitBody
}

func (in *planInput) body() any { return &in.Input }

func (in *planInput) command() fsm.Command { return &fsm.JobSubmit{Spec: in.Input.Job} }

func (s *Server) planJob(ctx context.Context, r *reading, in *planInput) (api.JobPlan, error) {
	spec := in.Input.Job
	if string(spec.Name) != in.Name {
		return api.JobPlan{},
			model.Refuse(model.CodeInvalid, "the path names job %q, the spec is of %q", clip(in.Name), clip(string(spec.Name)))
	}
	expanded := spec.Expand()
	if refusal := cmp.Or(expanded.Check(), expanded.CheckNew()); refusal != nil {
		return api.JobPlan{}, refusal
	}
	q := imageQuestion{s: s, r: r, keep: in.Input.KeepImages}
	spec, err := q.resolve(ctx, spec)
	if err != nil {
		return api.JobPlan{}, err
	}
	if q.asked {
		if err := workFrom(ctx).begin(ctx); err != nil {
			return api.JobPlan{}, err
		}
	}
	got, err := r.planner.Plan(r.question(), spec)
	if err != nil {
		return api.JobPlan{}, err
	}
	v := api.JobPlan{Job: got.Job, Index: got.Index, Version: got.Version, Changes: got.Changes,
		Groups: []api.PlannedGroup{}, Images: imagesOf(spec)}
	for _, g := range got.Groups {
		v.Groups = append(v.Groups, api.PlannedGroup{
			Group: g.Group, Created: g.Created, Destroyed: g.Destroyed, Kept: g.Kept, Unschedulable: g.Unschedulable,
			Code: g.Code, Message: r.veil.text(g.Message), Excluded: notNil(g.Excluded), Budgets: notNil(g.Budgets),
			Preempts: veiledAll(r.veil, g.Preempts),
		})
	}
	return v, nil
}

type parseInput struct {
	AskParams
	Input api.JobFileBody
}

func (in *parseInput) body() any { return &in.Input }

// command returns a command about no job: the text is the caller's own, and the answer reveals nothing else.
func (in *parseInput) command() fsm.Command { return &fsm.JobSubmit{} }

// parseJob reads a job file. Messages call the file "job". Code: invalid.
func parseJob(_ context.Context, _ *reading, in *parseInput) (api.JobFileSpec, error) {
	spec, err := jobfile.Parse("job", []byte(in.Input.Text))
	return api.JobFileSpec{Job: spec}, err
}

func showFile(ctx context.Context, r *reading, in *versionRead) (api.JobFile, error) {
	v, err := showVersion(ctx, r, in)
	if err != nil {
		return api.JobFile{}, err
	}
	text, err := jobfile.PrintBrief(v.Spec)
	if err != nil {
		return api.JobFile{}, model.Refuse(model.CodeInternal, "version %d of job %s can't be written as a file: %v",
			v.Version, v.Job, err)
	}
	return api.JobFile{Job: v.Job, Version: v.Version, Text: text}, nil
}
