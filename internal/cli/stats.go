package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// statsEvery is the pause between two looks with --follow.
const statsEvery = 2 * time.Second

const statsMeaning = "The numbers are the kernel's, from the agent of the node, through any server. CPU is the time " +
	"used since the\nstart of the program, and the cores used on average over a second. Memory leaves out page cache " +
	"that the kernel can\ndrop. What is not known is shown as ?, in JSON as null. A limit that does not exist is shown " +
	"as none, in JSON as null."

func statsFollowFlag(cmd *cobra.Command, follow *bool) {
	cmd.Flags().
		BoolVarP(follow, "follow", "f", false, "show it again and again, every 2s; with -o json: one line each time")
}

func instanceStats(a *app) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "stats INSTANCE", Short: "show what an instance uses: CPU, memory, processes, disk",
		Args: term.Exactly("INSTANCE"), ValidArgsFunction: a.complete("instances"),
		Long:    "Shows what an instance uses now.\n" + statsMeaning,
		Example: "outspan instance stats 3k9f\noutspan instance stats 3k9f -f",
		RunE: func(cmd *cobra.Command, args []string) error {
			return showStats(cmd.Context(), a, follow, func() (term.Result, error) {
				got, err := a.client().Instances.Stats(cmd.Context(), args[0])
				return term.Result{JSON: got.Raw, Names: []string{string(got.Value.ID)}, Text: func(p *term.Page) {
					statsPage(p, got.Value)
				}}, err
			})
		},
	}
	statsFollowFlag(cmd, &follow)
	return cmd
}

func jobStats(a *app) *cobra.Command {
	var follow bool
	var o client.JobStatsOptions
	cmd := &cobra.Command{
		Use: "stats JOB", Short: "show what each instance of a job uses: CPU, memory, processes, disk",
		Args: term.Exactly("JOB"), ValidArgsFunction: a.complete("jobs"),
		Long: "Shows what each instance of a job uses now, of those that have not ended. If the agent of a node does not " +
			"answer, its\ninstances are shown with the reason.\n" + statsMeaning,
		Example: "outspan job stats web\noutspan job stats web --group http -f",
		RunE: func(cmd *cobra.Command, args []string) error {
			return showStats(cmd.Context(), a, follow, func() (term.Result, error) {
				got, err := a.client().Jobs.Stats(cmd.Context(), args[0], o)
				items := got.Value.Items
				return term.Result{JSON: got.Raw, Names: namesOf(items, statsID), Text: func(p *term.Page) {
					term.Rows(p, items, statsColumns())
					if got.Value.Hidden > 0 {
						a.Note("%d more that you may not see", got.Value.Hidden)
					}
				}}, err
			})
		},
	}
	statsFollowFlag(cmd, &follow)
	cmd.Flags().StringVar(&o.Group, "group", "", "only of this group")
	return cmd
}

// showStats shows what read returns, once or again and again until ctx ends. On a terminal, each look replaces the one
// before. An error that may pass does not end --follow.
func showStats(ctx context.Context, a *app, follow bool, read func() (term.Result, error)) error {
	for {
		result, err := read()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !(follow && api.ExitOfError(err) == api.ExitTransient):
			return err
		case err != nil:
			a.Note("%s, trying again", describe(err).Message)
		case follow && a.Output.Template == "" && a.Output.Is(term.AsJSON):
			var line bytes.Buffer
			if err := json.Compact(&line, result.JSON); err != nil {
				return err
			}
			a.Printf("%s\n", line.Bytes())
		default:
			if follow && a.Terminal && !a.Output.Machine() {
				a.Printf("\x1b[H\x1b[2J")
			}
			if err := a.Show(result); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
		if !wait(ctx, statsEvery) {
			return context.Cause(ctx)
		}
	}
}

func statsID(s api.InstanceStats) string { return string(s.ID) }

func statsColumns() []term.Column[api.InstanceStats] {
	of := func(text func(*api.InstanceUse) string) func(api.InstanceStats) string {
		return func(s api.InstanceStats) string {
			if s.Use == nil {
				return "?"
			}
			return text(s.Use)
		}
	}
	return []term.Column[api.InstanceStats]{
		{Head: "id", Cell: statsID},
		{Head: "group", Cell: func(s api.InstanceStats) string { return string(s.Job) + "/" + s.Group }},
		{Head: "slot", Cell: func(s api.InstanceStats) string { return fmt.Sprint(s.Slot) }},
		{Head: "node", Cell: func(s api.InstanceStats) string { return s.Node }},
		{Head: "uptime", Cell: of(uptimeText)},
		{Head: "cpu", Cell: of(func(u *api.InstanceUse) string { return secondsText(u.CPU.Seconds) })},
		{Head: "cores", Cell: of(func(u *api.InstanceUse) string { return coresText(u.CPU.Cores) })},
		{Head: "memory", Cell: of(func(u *api.InstanceUse) string {
			return bytesText(u.Memory.Bytes, "?") + "/" + bytesText(u.Memory.LimitBytes, "none")
		})},
		{Head: "peak", Cell: of(func(u *api.InstanceUse) string { return bytesText(u.Memory.PeakBytes, "?") })},
		{Head: "processes", Cell: of(func(u *api.InstanceUse) string { return fmt.Sprint(u.Processes.Count) })},
		{Head: "threads", Cell: of(threadsText)},
		{Head: "disk", Cell: of(diskUseText)},
		{Head: "reason", Cell: func(s api.InstanceStats) string {
			if s.Problem == nil {
				return ""
			}
			return fmt.Sprintf("%s (%s)", s.Problem.Message, s.Problem.Code)
		}},
		{Head: "notes", Wide: true, Cell: of(func(u *api.InstanceUse) string { return strings.Join(u.Notes, "; ") })},
	}
}

func statsPage(p *term.Page, s api.InstanceStats) {
	u := cmp.Or(s.Use, &api.InstanceUse{})
	cores := coresText(u.CPU.Cores)
	if u.CPU.Interval != nil {
		cores += " over " + u.CPU.Interval.String()
	}
	p.Fields(
		term.Field{"Id", statsID(s)}, term.Field{"Group", string(s.Job) + "/" + s.Group},
		term.Field{"Slot", fmt.Sprint(s.Slot)}, term.Field{"Node", s.Node},
		term.Field{"Uptime", uptimeText(u)},
		term.Field{"CPU", secondsText(u.CPU.Seconds) + " in all"},
		term.Field{"Cores", cores},
		term.Field{"Memory", bytesText(u.Memory.Bytes, "?") + ", limit " + bytesText(u.Memory.LimitBytes, "none")},
		term.Field{"Memory peak", bytesText(u.Memory.PeakBytes, "?")},
		term.Field{"Processes", fmt.Sprint(u.Processes.Count)},
		term.Field{"Threads", strings.Replace(threadsText(u), "/", ", limit ", 1)},
		term.Field{"Disk", strings.Replace(diskUseText(u), "/", ", limit ", 1)},
	)
	for _, note := range slices.Compact(u.Notes) {
		p.Line("note: %s", note)
	}
}

func uptimeText(u *api.InstanceUse) string {
	if u.Uptime == nil {
		return "?"
	}
	return term.Span(time.Duration(*u.Uptime) * time.Millisecond)
}

func secondsText(s *float64) string {
	if s == nil {
		return "?"
	}
	return fmt.Sprintf("%.2fs", *s)
}

func coresText(c *float64) string {
	if c == nil {
		return "?"
	}
	return fmt.Sprintf("%.2f", *c)
}

func bytesText(n *int64, without string) string {
	if n == nil {
		return without
	}
	return model.SizeText(*n)
}

func threadsText(u *api.InstanceUse) string {
	count := func(n *int64, without string) string {
		if n == nil {
			return without
		}
		return fmt.Sprint(*n)
	}
	return count(u.Processes.Threads, "?") + "/" + count(u.Processes.ThreadsLimit, "none")
}

func diskUseText(u *api.InstanceUse) string {
	text := bytesText(u.Disk.Bytes, "?") + "/" + bytesText(u.Disk.LimitBytes, "none")
	if u.Disk.AtLeast {
		return ">" + text
	}
	return text
}
