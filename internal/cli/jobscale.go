package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A scale that grows a group by this factor, and leaves so many of the new instances without a node, needs --yes.
const (
	farFactor   = 10
	farUnplaced = 100
)

func jobScale(a *app) *cobra.Command {
	var change changeFlags
	var yes bool
	cmd := &cobra.Command{
		Use: "scale JOB [GROUP] COUNT", Short: "change how many instances a group has", Args: between(2, 3), ValidArgsFunction: a.complete("jobs"),
		Long: `Changes the count in the job's spec. A job of one group needs no GROUP; JOB/GROUP COUNT and JOB GROUP=COUNT mean the same as JOB GROUP COUNT.

A dry run also tells how many of the new instances fit nowhere now, and ends with 21 if there are any. A group that would become ten times as large,
with a hundred or more new instances that fit nowhere, is scaled only with --yes.`,
		Example: "outspan job scale web 5\noutspan job scale web http 5",
		RunE: func(cmd *cobra.Command, args []string) error {
			job, group, text := scaleWords(args)
			count, err := strconv.Atoi(text)
			if err != nil || count < 0 {
				return usage("%q is not a number of instances", text).WithHint("write: outspan job scale %s [GROUP] COUNT", job)
			}
			return a.scaleJob(cmd.Context(), job, scaling{group, count}, yes, &change)
		},
	}
	change.register(cmd, "check and show how many would fit nowhere or stop, change nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "the count is meant, although most of the new instances fit nowhere")
	return cmd
}

// scaling is a group and how many instances it is to have.
type scaling struct {
	Group string // may be "" if the job has one
	Count int
}

// scale has the servers carry it out.
func (s scaling) scale(ctx context.Context, a *app, job string, o client.WriteOptions) (client.Response[api.JobReply], error) {
	return a.client().Jobs.Scale(ctx, job, api.ScaleBody{Group: s.Group, Count: &s.Count}, o)
}

// unplacedScale is what of a scale fits nowhere now.
type unplacedScale struct {
	Group    model.GroupID    `json:"-"`
	Before   int              `json:"-"`
	Count    int              `json:"count"`
	Of       int              `json:"of"`
	Code     model.Code       `json:"code"`
	Message  string           `json:"message"`
	Excluded []model.Excluded `json:"excluded"`
}

// scaledReply is what a dry run of a scale prints as JSON.
type scaledReply struct {
	api.JobReply
	Unplaced *unplacedScale `json:"unplaced,omitempty"`
}

func (a *app) scaleJob(ctx context.Context, job string, body scaling, yes bool, change *changeFlags) error {
	unplaced, err := a.unplacedAfter(ctx, job, body)
	if err != nil {
		return err
	}
	if change.write.dryRun && unplaced == nil {
		return a.showSmaller(ctx, job, body, change)
	}
	switch {
	case unplaced == nil:
	case change.write.dryRun:
		return a.showScale(ctx, job, body, unplaced, change)
	case !yes && body.Count >= farFactor*max(unplaced.Before, 1) && unplaced.Count >= farUnplaced:
		return usage("scale %s from %d to %d: %s", unplaced.Group, unplaced.Before, body.Count, unplaced.text()).
			WithHint("if the count is meant, say so with --yes")
	case !a.output.machine():
		a.note("%s", unplaced.text())
	}
	return a.changeJob(ctx, fmt.Sprintf("is scaled to %d", body.Count), change, func(ctx context.Context, o client.WriteOptions) (client.Response[api.JobReply], error) {
		return body.scale(ctx, a, job, o)
	})
}

func (u *unplacedScale) text() string {
	return fmt.Sprintf("%d of the %d new instances fit nowhere now: %s (%s)", u.Count, u.Of, u.Message, u.Code)
}

// unplacedAfter plans a scale and returns what of it fits nowhere; nil if everything fits, or if the plan can't be
// made: then the scale itself says why.
func (a *app) unplacedAfter(ctx context.Context, job string, body scaling) (*unplacedScale, error) {
	now, err := a.client().Jobs.Get(ctx, job, client.ReadOptions{})
	if err != nil || string(now.Value.Name) != job || now.Value.Status == api.JobStopped {
		return nil, ctx.Err()
	}
	spec := now.Value.Spec
	i := slices.IndexFunc(spec.Groups, func(g model.GroupSpec) bool { return g.Name == body.Group || body.Group == "" && len(spec.Groups) == 1 })
	if i >= 0 {
		a.noteKeepsAll(spec, spec.Groups[i], body.Count)
	}
	if i < 0 || spec.Groups[i].Count >= body.Count {
		return nil, nil
	}
	u := &unplacedScale{Group: model.NewGroupID(spec.Name, spec.Groups[i].Name), Before: spec.Groups[i].Count}
	spec.Groups[i].Count = body.Count
	planned, err := a.plan(ctx, spec)
	if err != nil {
		return nil, ctx.Err()
	}
	for _, g := range planned.Groups {
		if g.Group == u.Group {
			u.Of = body.Count - u.Before
			u.Count, u.Code, u.Message, u.Excluded = min(g.Unschedulable, u.Of), g.Code, g.Message, g.Excluded
		}
	}
	if u.Count == 0 {
		return nil, nil
	}
	return u, nil
}

// noteKeepsAll says that a group's budget would let none of its instances stop, where its min_ready is more than the
// new count.
func (a *app) noteKeepsAll(spec model.JobSpec, g model.GroupSpec, count int) {
	if g.Budget == nil || g.Budget.MinReady == nil || g.Budget.MinReady.Percent || g.Budget.MinReady.N <= count || count == 0 || a.output.machine() {
		return
	}
	g.Count = count
	a.note("%s", budgetLine(fsm.PreviewBudget(&g, spec.Name, spec.Class)))
}

// showScale prints a dry run of a scale when not all of it fits.
func (a *app) showScale(ctx context.Context, job string, body scaling, u *unplacedScale, change *changeFlags) error {
	got, err := body.scale(ctx, a, job, change.write.options())
	if err != nil {
		return err
	}
	s, err := shownValue(scaledReply{got.Value, u}, []string{job}, func(p *page) {
		p.jobReply(&got.Value, fmt.Sprintf("is scaled to %d", body.Count), &change.write)
		p.line("%s: %s", u.Group, u.text())
		for _, e := range u.Excluded {
			p.line("  %s: %d node(s) excluded by %s", u.Group, e.Nodes, e.Code)
		}
	})
	if err != nil {
		return err
	}
	if err := a.show(s); err != nil {
		return err
	}
	missing := unplacedOf{job: job, there: true, count: u.Count, why: fmt.Sprintf("%s (%s)", u.Message, u.Code), codes: []model.Code{u.Code}}
	return missing.refusal()
}

// showSmaller prints a dry run of a scale when all of it fits, with what would stop.
func (a *app) showSmaller(ctx context.Context, job string, body scaling, change *changeFlags) error {
	got, err := body.scale(ctx, a, job, change.write.options())
	if err != nil {
		return err
	}
	stops := []wouldStop{}
	if r := got.Value; r.Job != nil && r.Changed {
		if stops, err = a.stopsOf(ctx, string(r.Job.Name), body.Group, body.Count); err != nil {
			return err
		}
	}
	return a.showStops(got.Value, fmt.Sprintf("is scaled to %d", body.Count), stops, &change.write)
}

// scaleWords takes what people type apart: JOB COUNT, JOB GROUP COUNT, JOB/GROUP COUNT or JOB GROUP=COUNT.
func scaleWords(args []string) (job, group, count string) {
	job, count = args[0], args[len(args)-1]
	if len(args) == 3 {
		return job, args[1], count
	}
	if name, number, ok := strings.Cut(count, "="); ok {
		return job, name, number
	}
	job, group, _ = strings.Cut(job, "/")
	return job, group, count
}
