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
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// A scale needs --yes if the group grows by the factor farFactor or more, and farUnplaced or more of the new instances
// fit on no node.
const (
	farFactor   = 10
	farUnplaced = 100
)

func jobScale(a *app) *cobra.Command {
	var change changeFlags
	var yes bool
	cmd := &cobra.Command{
		Use: "scale JOB [GROUP] COUNT", Short: "change how many instances a group has", Args: term.Between(2, 3),
		ValidArgsFunction: a.complete("jobs"),
		Long: `Changes the count in the job's spec. A job of one group needs no GROUP; JOB/GROUP COUNT and JOB GROUP=COUNT mean the same as JOB GROUP COUNT.

A dry run also tells how many of the new instances fit nowhere now, and ends with 21 if there are any. A group that would become ten times as large,
with a hundred or more new instances that fit nowhere, is scaled only with --yes.`,
		Example: "outspan job scale web 5\noutspan job scale web http 5",
		RunE: func(cmd *cobra.Command, args []string) error {
			job, group, text := scaleWords(args)
			count, err := strconv.Atoi(text)
			if err != nil || count < 0 {
				return term.Usage("%q is not a number of instances", text).
					WithHint("write: outspan job scale %s [GROUP] COUNT", job)
			}
			return a.scaleJob(cmd.Context(), job, scaling{group, count}, yes, &change)
		},
	}
	change.register(cmd, "check and show how many would fit nowhere or stop, change nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "the count is meant, although most of the new instances fit nowhere")
	return cmd
}

// scaling is a group and its new number of instances.
type scaling struct {
	Group string // may be "" if the job has only one group
	Count int
}

func (s scaling) scale(ctx context.Context, a *app, job string,
	o client.WriteOptions) (client.Response[api.JobReply], error) {
	return a.client().Jobs.Scale(ctx, job, api.ScaleBody{Group: s.Group, Count: &s.Count}, o)
}

// unplacedScale describes the new instances of a scale that fit on no node now.
type unplacedScale struct {
	Group    model.GroupID    `json:"-"`
	Before   int              `json:"-"`     // the group's count before the scale
	Count    int              `json:"count"` // new instances that fit on no node
	Of       int              `json:"of"`    // all new instances
	Code     model.Code       `json:"code"`
	Message  string           `json:"message"`
	Excluded []model.Excluded `json:"excluded"`
}

// scaledReply is the JSON of a dry run of a scale whose new instances don't all fit.
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
		return a.showStopsOfScale(ctx, job, body, change)
	}
	switch {
	case unplaced == nil:
	case change.write.dryRun:
		return a.showScale(ctx, job, body, unplaced, change)
	case !yes && body.Count >= farFactor*max(unplaced.Before, 1) && unplaced.Count >= farUnplaced:
		return term.Usage("scale %s from %d to %d: %s", unplaced.Group, unplaced.Before, body.Count, unplaced.text()).
			WithHint("if the count is meant, say so with --yes")
	case !a.Output.Machine():
		a.Note("%s", unplaced.text())
	}
	do := func(ctx context.Context, o client.WriteOptions) (client.Response[api.JobReply], error) {
		return body.scale(ctx, a, job, o)
	}
	return a.changeJob(ctx, fmt.Sprintf("is scaled to %d", body.Count), change, do)
}

func (u *unplacedScale) text() string {
	return fmt.Sprintf("%d of the %d new instances fit nowhere now: %s (%s)", u.Count, u.Of, u.Message, u.Code)
}

// unplacedAfter plans a scale and returns the new instances that would fit on no node. It returns nil if all fit, or if
// the group does not grow. It also returns nil if planning fails, because the scale itself then reports the reason. The
// only possible error is that ctx has ended.
func (a *app) unplacedAfter(ctx context.Context, job string, body scaling) (*unplacedScale, error) {
	now, err := a.client().Jobs.Get(ctx, job, client.ReadOptions{})
	if err != nil || string(now.Value.Name) != job || now.Value.Status == api.JobStopped {
		return nil, ctx.Err()
	}
	spec := now.Value.Spec
	i := slices.IndexFunc(spec.Groups, func(g model.GroupSpec) bool {
		return g.Name == body.Group || body.Group == "" && len(spec.Groups) == 1
	})
	if i >= 0 {
		a.noteKeepsAll(spec, spec.Groups[i], body.Count)
	}
	if i < 0 || spec.Groups[i].Count >= body.Count {
		return nil, nil
	}
	u := &unplacedScale{Group: model.NewGroupID(spec.Name, spec.Groups[i].Name), Before: spec.Groups[i].Count}
	spec.Groups[i].Count = body.Count
	planned, err := a.plan(ctx, spec, false)
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

// noteKeepsAll warns if the new count is below min_ready, because the group's budget would then let no instance stop.
// It does not warn if the count is 0, if min_ready is a percentage, or if the output is for a program.
func (a *app) noteKeepsAll(spec model.JobSpec, g model.GroupSpec, count int) {
	if g.Budget == nil || g.Budget.MinReady == nil || g.Budget.MinReady.Percent || g.Budget.MinReady.N <= count ||
		count == 0 || a.Output.Machine() {
		return
	}
	g.Count = count
	a.Note("%s", budgetLine(local.PreviewBudget(&g, spec.Name, spec.Class)))
}

// showScale prints a dry run of a scale whose new instances don't all fit.
func (a *app) showScale(ctx context.Context, job string, body scaling, u *unplacedScale, change *changeFlags) error {
	got, err := body.scale(ctx, a, job, change.write.options())
	if err != nil {
		return err
	}
	s, err := term.ResultOf(scaledReply{got.Value, u}, []string{job}, func(p *term.Page) {
		jobReplyPage(p, &got.Value, fmt.Sprintf("is scaled to %d", body.Count), &change.write)
		p.Line("%s: %s", u.Group, u.text())
		for _, e := range u.Excluded {
			p.Line("  %s: %d node(s) excluded by %s", u.Group, e.Nodes, e.Code)
		}
	})
	if err != nil {
		return err
	}
	if err := a.Show(s); err != nil {
		return err
	}
	missing := unplacedOf{job: job, there: true, count: u.Count, why: fmt.Sprintf("%s (%s)", u.Message, u.Code),
		codes: []model.Code{u.Code}}
	return missing.refusal()
}

// showStopsOfScale prints a dry run of a scale that adds no instances, or whose new instances all fit. It also prints
// the instances that would stop.
func (a *app) showStopsOfScale(ctx context.Context, job string, body scaling, change *changeFlags) error {
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

// scaleWords parses the arguments JOB COUNT, JOB GROUP COUNT, JOB/GROUP COUNT or JOB GROUP=COUNT.
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

// wouldStop is a group in which at least one instance would stop.
type wouldStop struct {
	Group     model.GroupID      `json:"group"`
	Stop      int                `json:"stop"` // how many of Instances would stop; which ones is decided later
	Instances []model.InstanceID `json:"instances"`
	nodes     []string
}

// text describes the stops. If all instances of the group would stop, the text names up to listedAtMost of them with
// their nodes. Otherwise it only gives their number.
func (w *wouldStop) text() string {
	of := len(w.Instances)
	if w.Stop < of {
		return fmt.Sprintf("%s: %d of its %d instances would stop", w.Group, w.Stop, of)
	}
	names := make([]string, of)
	for i, id := range w.Instances {
		names[i] = string(id) + " on " + w.nodes[i]
	}
	if more := of - listedAtMost; more > 0 {
		names = append(names[:listedAtMost], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%s: all of its %d instances would stop: %s", w.Group, of, strings.Join(names, ", "))
}

// stopsOf returns the groups of a job in which instances would stop if the count of each group were keep. If group is
// not "", it considers only that group. It ignores instances that stop already. If keep is above 0, it also ignores
// instances that have a replacement, because they stop anyway.
func (a *app) stopsOf(ctx context.Context, job, group string, keep int) ([]wouldStop, error) {
	running, err := a.client().Instances.List(ctx, client.InstanceListOptions{
		ListOptions: client.ListOptions{Filter: []string{"desired=running"}}, Job: job, Group: group,
	})
	if err != nil {
		return nil, err
	}
	all := []wouldStop{}
	there := map[model.InstanceID]bool{}
	for _, i := range running.Items {
		there[i.ID] = true
	}
	for _, i := range sorted(running, bySlot).Items {
		if keep > 0 && there[i.ReplacedBy] {
			continue
		}
		id := model.NewGroupID(i.Job, i.Group)
		at := slices.IndexFunc(all, func(w wouldStop) bool { return w.Group == id })
		if at < 0 {
			at, all = len(all), append(all, wouldStop{Group: id})
		}
		w := &all[at]
		w.Instances, w.nodes = append(w.Instances, i.ID), append(w.nodes, i.Node)
		w.Stop = max(0, len(w.Instances)-keep)
	}
	return slices.DeleteFunc(all, func(w wouldStop) bool { return w.Stop == 0 }), nil
}

// stoppedReply is the JSON of a dry run of a stop, or of a scale that showStopsOfScale prints.
type stoppedReply struct {
	api.JobReply
	Stops []wouldStop `json:"stops"`
}

// showStops prints a dry run with the instances that would stop.
func (a *app) showStops(r api.JobReply, done string, stops []wouldStop, write *writeFlags) error {
	name := ""
	if r.Job != nil {
		name = jobName(*r.Job)
	}
	s, err := term.ResultOf(stoppedReply{r, stops}, []string{name}, func(p *term.Page) {
		jobReplyPage(p, &r, done, write)
		for _, w := range stops {
			p.Line("  %s", w.text())
		}
	})
	if err != nil {
		return err
	}
	return a.Show(s)
}

// checkNodes refuses a list of nodes if one of them is unknown, so that a mistyped name prevents the whole drain: the
// servers would reject only that name and drain the other nodes. It does not check a single name, because the servers
// refuse a drain without a known node. Code: not_found.
func (a *app) checkNodes(ctx context.Context, nodes []string) error {
	if len(nodes) < 2 {
		return nil
	}
	known, err := a.client().Nodes.List(ctx, client.ListOptions{Fields: []string{"id", "name"}})
	if err != nil {
		return err
	}
	unknown := slices.DeleteFunc(slices.Clone(nodes), func(name string) bool {
		return slices.ContainsFunc(known.Items, func(n api.Node) bool { return n.Name == name || string(n.ID) == name })
	})
	if len(unknown) == 0 {
		return nil
	}
	return model.Refuse(model.CodeNotFound, "there is no node %s; nothing was begun", strings.Join(unknown, ", ")).
		WithHint("list them with: outspan node ls")
}
