package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func className(c api.ClassView) string { return string(c.Name) }

func classLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list classes, the highest first", Args: term.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Classes.List(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, got, className, []term.Column[api.ClassView]{
				{Head: "name", Cell: className},
				{Head: "rank", Cell: func(c api.ClassView) string { return fmt.Sprint(c.Rank) }},
				{Head: "default", Cell: func(c api.ClassView) string { return term.YesNo(c.Default) }},
				{Head: "jobs", Cell: func(c api.ClassView) string { return fmt.Sprint(c.Jobs) }},
				{Head: "max down", Cell: func(c api.ClassView) string {
					return model.MaxDown{Amount: c.MaxDown, Floor: c.MaxDownFloor}.String()
				}},
				{Head: "memory", Cell: func(c api.ClassView) string {
					return ofQuota(model.SizeText(c.Used.MemoryBytes), c.Quota.MemoryBytes > 0, model.SizeText(c.Quota.MemoryBytes))
				}},
				{Head: "instances", Cell: func(c api.ClassView) string {
					return ofQuota(fmt.Sprint(c.Used.Instances), c.Quota.Instances > 0, fmt.Sprint(c.Quota.Instances))
				}},
				{Head: "preempts equal", Wide: true, Cell: func(c api.ClassView) string { return string(c.PreemptEqual) }},
			})
		},
	}
	filter.register(cmd)
	return cmd
}

func ofQuota(used string, limited bool, limit string) string {
	if !limited {
		return used
	}
	return used + " of " + limit
}

func classSet(a *app) *cobra.Command {
	var write writeFlags
	var f classFlags
	cmd := &cobra.Command{
		Use: "set NAME", Short: "make a class, or change one; what is not given stays", Args: term.Exactly("NAME"),
		ValidArgsFunction: a.complete("classes"),
		Long: `Makes a priority class, or changes one. Classes are in one order, the highest first: a new one needs --below or --above, which say where it stands;
with a class that exists they move it. No instance is changed by that.`,
		Example: "outspan class set gold --above production\noutspan class set batch --quota-memory 64GiB " +
			"--quota-instances 200",
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := f.body()
			if err != nil {
				return err
			}
			got, err := a.client().Classes.Set(cmd.Context(), args[0], body, write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: args, Text: func(p *term.Page) {
				rank := 0
				if got.Value.Class != nil {
					rank = got.Value.Class.Rank
				}
				p.Line("class %s %s, rank %d %s", args[0], write.would("is set"), rank, write.done(got.Value.Index))
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	cmd.Flags().StringVar(&f.below, "below", "", "stand directly below this class: less important")
	cmd.Flags().StringVar(&f.above, "above", "", "stand directly above this class: more important")
	cmd.Flags().
		StringVar(&f.maxDown, "max-down", "",
			"how many instances of a group may be down that has no budget of its own: a number, or a percentage of "+
				"which at least 1")
	cmd.Flags().
		StringVar(&f.quotaMemory, "quota-memory", "",
			"memory that all instances of the class may take, the overhead included: 64GiB, or none")
	cmd.Flags().StringVar(&f.quotaInstances, "quota-instances", "", "how many instances the class may have, or none")
	cmd.Flags().
		StringVar(&f.preemptEqual, "preempt-equal", "",
			"off, or fair: an instance that fits nowhere may preempt one of its own class where that lowers the "+
				"largest owner's share")
	for _, name := range [...]string{"below", "above"} {
		_ = cmd.RegisterFlagCompletionFunc(name,
			func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return a.complete("classes")(cmd, nil, typed)
			}) // can't fail, because the flags exist
	}
	_ = cmd.RegisterFlagCompletionFunc("preempt-equal", completeWords("off", "fair"))
	return cmd
}

type classFlags struct{ below, above, maxDown, quotaMemory, quotaInstances, preemptEqual string }

func (f *classFlags) body() (api.ClassBody, error) {
	body := api.ClassBody{Below: model.ClassName(f.below), Above: model.ClassName(f.above),
		PreemptEqual: model.PreemptEqual(f.preemptEqual)}
	if f.maxDown != "" {
		body.MaxDown = new(model.Amount)
		if err := body.MaxDown.UnmarshalText([]byte(f.maxDown)); err != nil {
			return body, term.Usage("--max-down: %v", err)
		}
	}
	switch f.quotaMemory {
	case "":
	case "none", "0":
		body.QuotaMemory = new(int64(0))
	default:
		n, err := model.ParseSize(f.quotaMemory)
		if err != nil {
			return body, term.Usage("--quota-memory: %v", err)
		}
		body.QuotaMemory = &n
	}
	switch f.quotaInstances {
	case "":
	case "none":
		body.QuotaInstances = new(0)
	default:
		n, err := strconv.Atoi(f.quotaInstances)
		if err != nil || n < 0 {
			return body, term.Usage("--quota-instances takes a number or none, not %q", f.quotaInstances)
		}
		body.QuotaInstances = &n
	}
	return body, nil
}

func classRm(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "remove a class that no job has", Args: term.Exactly("NAME"),
		ValidArgsFunction: a.complete("classes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.client().Classes.Remove(cmd.Context(), args[0], write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: args, Text: func(p *term.Page) {
				p.Line("class %s %s %s", args[0], write.would("is removed"), write.done(got.Value.Index))
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}
