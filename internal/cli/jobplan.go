package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func jobPlan(a *app) *cobra.Command {
	var exitCodes, keepImages bool
	cmd := &cobra.Command{
		Use: "plan FILE", Short: "show what a job file would change", Args: term.Exactly("FILE"),
		Long: `Shows the differences to the present version of the job, and what would be created, replaced and stopped. Nothing is changed.

Exit codes: 0; 20 there are changes (with --exit-code); 21 not all could be placed.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := a.readJob(args[0])
			if err != nil {
				return err
			}
			p, err := a.plan(cmd.Context(), spec, keepImages)
			if err != nil {
				return err
			}
			err = a.showPlan(p)
			if err == nil && p.Changes && p.Index > 0 && !a.Output.Machine() {
				a.Printf("to submit exactly this: outspan job run %s --if-index %d\n", args[0], p.Index)
			}
			err = cmp.Or(err, p.unplacedError(p.Index > 0))
			if err == nil && exitCodes && p.Changes {
				err = term.Quiet{Code: term.ExitHasChanges}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&exitCodes, "exit-code", false, "end with 20 when there are changes")
	cmd.Flags().BoolVar(&keepImages, "keep-images", false, keepImagesText)
	return cmd
}

const keepImagesText = "" +
	"an image whose name is that of the present version keeps its digest; no registry is asked for it"

// jobPlanned is the JSON of job plan: what submitting a job file would change in the cluster and in the spec.
type jobPlanned struct {
	api.JobPlan
	Diff []difference `json:"diff"`
}

// difference is a change of one key of the spec.
type difference struct {
	Op     string `json:"op"` // add, remove or change
	Path   string `json:"path"`
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
}

// unplacedError returns an error if some instances can't be placed, else nil. The parameter there is true if the
// servers have the job. The error's hint then names a command that explains the placement.
func (p *jobPlanned) unplacedError(there bool) error {
	u, why := unplacedOf{job: string(p.Job), there: there}, []string{}
	for _, g := range p.Groups {
		if g.Unschedulable > 0 {
			u.count, u.codes = u.count+g.Unschedulable, append(u.codes, g.Code)
			_, name := g.Group.Split()
			why = append(why, fmt.Sprintf("%s: %s (%s)", name, g.Message, g.Code))
		}
	}
	if u.count == 0 {
		return nil
	}
	u.why = strings.Join(why, "; ")
	return u.refusal()
}

func (a *app) plan(ctx context.Context, spec model.JobSpec, keepImages bool) (*jobPlanned, error) {
	got, err := a.client().Jobs.Plan(ctx, api.SubmitBody{Job: spec, KeepImages: keepImages}, client.PlanOptions{})
	if err != nil {
		return nil, err
	}
	p := &jobPlanned{JobPlan: got.Value, Diff: []difference{}}
	var before *model.JobSpec
	if got.Value.Index > 0 {
		now, err := a.client().Jobs.Get(ctx, string(spec.Name), client.ReadOptions{})
		if err != nil && !isCode(err, model.CodeNotFound) {
			return nil, err
		}
		if err == nil && now.Value.Name == spec.Name {
			before = &now.Value.Spec
		}
	}
	p.Diff, err = diffSpecs(before, pinned(spec, p.Images).Expand())
	return p, err
}

// diffSpecs lists the differences between two specs, key by key. It matches parts with names, such as groups, by name.
// If before is nil, every key of after is an addition.
func diffSpecs(before *model.JobSpec, after model.JobSpec) ([]difference, error) {
	old := map[string]any{}
	if before != nil {
		expanded := before.Expand()
		if err := flatten(old, expanded); err != nil {
			return nil, err
		}
	}
	now := map[string]any{}
	if err := flatten(now, after); err != nil {
		return nil, err
	}
	all := maps.Clone(old)
	maps.Copy(all, now)
	diff := []difference{}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		was, had := old[path]
		is, has := now[path]
		switch {
		case had && !has:
			diff = append(diff, difference{Op: "remove", Path: path, Before: was})
		case has && !had:
			diff = append(diff, difference{Op: "add", Path: path, After: is})
		case fmt.Sprint(was) != fmt.Sprint(is):
			diff = append(diff, difference{Op: "change", Path: path, Before: was, After: is})
		}
	}
	return diff, nil
}

// flatten adds the simple values of a spec to a map. The key of a value is its path in the spec, such as
// groups.http.update.max_surge.
func flatten(into map[string]any, spec model.JobSpec) error {
	raw, err := term.Marshal(spec)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return fmt.Errorf("read a spec back: %w", err)
	}
	flattenValue(into, "", v)
	return nil
}

func flattenValue(into map[string]any, path string, v any) {
	at := func(key string) string { return strings.TrimPrefix(path+"."+key, ".") }
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			flattenValue(into, at(key), inner)
		}
	case []any:
		for i, inner := range v {
			object, ok := inner.(map[string]any)
			if !ok {
				into[path] = listText(v) // a list of simple values becomes one value
				return
			}
			key := fmt.Sprint(i)
			if name, ok := object["name"].(string); ok {
				key = name
			}
			flattenValue(into, at(key), inner)
		}
	case nil:
	default:
		if text, ok := v.(string); !ok || text != "" {
			into[path] = v
		}
	}
}

func listText(list []any) string {
	text, err := term.JSONText(list)
	if err != nil {
		return fmt.Sprint(list)
	}
	return text
}

// groupCounts returns how many instances of a group would be created, replaced and stopped. It reports a created and a
// stopped instance together as one that is replaced.
func groupCounts(g api.PlannedGroup) (create, replace, stop int) {
	replace = min(g.Created, g.Destroyed)
	return g.Created - replace, replace, g.Destroyed - replace
}

func (a *app) showPlan(planned *jobPlanned) error {
	s, err := term.ResultOf(planned, []string{string(planned.Job)}, func(p *term.Page) { planPage(p, planned) })
	if err != nil {
		return err
	}
	return a.Show(s)
}

func planPage(p *term.Page, planned *jobPlanned) {
	switch {
	case !planned.Changes:
		p.Line("job %s: no changes (index %d)", planned.Job, planned.Index)
	case planned.Index == 0:
		p.Line("job %s: new, version %d", planned.Job, planned.Version)
	default:
		p.Line("job %s: version %d (now at index %d)", planned.Job, planned.Version, planned.Index)
	}
	if planned.Index > 0 {
		for _, d := range planned.Diff {
			p.Line("  %s", d.text())
		}
	}
	imageLines(p, planned.Images)
	term.Rows(p, planned.Groups, []term.Column[api.PlannedGroup]{
		{Head: "group", Cell: func(g api.PlannedGroup) string { _, name := g.Group.Split(); return name }},
		{Head: "create", Cell: func(g api.PlannedGroup) string { n, _, _ := groupCounts(g); return fmt.Sprint(n) }},
		{Head: "replace", Cell: func(g api.PlannedGroup) string { _, n, _ := groupCounts(g); return fmt.Sprint(n) }},
		{Head: "stop", Cell: func(g api.PlannedGroup) string { _, _, n := groupCounts(g); return fmt.Sprint(n) }},
		{Head: "keep", Cell: func(g api.PlannedGroup) string { return fmt.Sprint(g.Kept) }},
		{Head: "unschedulable", Cell: func(g api.PlannedGroup) string { return fmt.Sprint(g.Unschedulable) }},
		{Head: "why", Cell: func(g api.PlannedGroup) string { return string(g.Code) }},
	})
	for _, g := range planned.Groups {
		for _, e := range g.Excluded {
			p.Line("  %s: %d node(s) excluded by %s", g.Group, e.Nodes, e.Code)
		}
		if len(g.Preempts) > 0 {
			p.Line("  %s: %d less important instance(s) stop to make room", g.Group, len(g.Preempts))
		}
	}
	for _, g := range planned.Groups {
		for _, b := range g.Budgets {
			p.Line("%s", budgetLine(b))
		}
	}
}

func (d difference) text() string {
	switch d.Op {
	case "add":
		return fmt.Sprintf("+ %s = %v", d.Path, d.After)
	case "remove":
		return fmt.Sprintf("- %s = %v", d.Path, d.Before)
	}
	return fmt.Sprintf("~ %s = %v -> %v", d.Path, d.Before, d.After)
}

// runtimeText describes the container runtime of a node. It returns "" if the node has none.
func runtimeText(r *api.Runtime) string {
	switch {
	case r == nil:
		return ""
	case r.Down != "":
		return "none: " + r.Down
	}
	return r.Version
}

// bridgeText says which addresses containers with a network of their own have on a node, or why it has no such network.
func bridgeText(r *api.Runtime) string {
	switch {
	case r == nil:
		return ""
	case r.Bridge == "":
		return "none: " + r.NoBridge
	}
	return r.Bridge + " (IPv4 only)"
}

// pinned returns a copy of spec with the images that a plan found.
func pinned(spec model.JobSpec, images []api.GroupImage) model.JobSpec {
	spec.Groups = slices.Clone(spec.Groups)
	for i := range spec.Groups {
		g := &spec.Groups[i]
		for _, image := range images {
			if image.Group == model.NewGroupID(spec.Name, g.Name) && g.Container != nil {
				c := *g.Container
				c.Image, c.Platforms = image.Image+"@"+image.Digest, image.Platforms
				g.Container = &c
			}
		}
	}
	return spec
}

// imageLines says which images the groups of a job run.
func imageLines(p *term.Page, images []api.GroupImage) {
	for _, image := range images {
		text := fmt.Sprintf("  %s: image %s is %s", image.Group, image.Image, image.Digest)
		if len(image.Platforms) > 0 {
			text += " (" + strings.Join(image.Platforms, ", ") + ")"
		}
		p.Line("%s", text)
	}
}
