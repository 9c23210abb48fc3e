package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/transport/api"
)

func serviceName(s api.Service) string { return string(s.Name) }

func serviceLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list services", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := list[api.Service](cmd.Context(), a, "/v1/services", filter.query())
			if err != nil {
				return err
			}
			return showList(a, got, serviceName, []column[api.Service]{
				{head: "name", cell: serviceName},
				{head: "group", cell: func(s api.Service) string { return string(s.Group) }},
				{head: "port", cell: func(s api.Service) string { return s.Port }},
				{head: "expose", cell: func(s api.Service) string { return number(s.Expose) }},
				{head: "backends", cell: func(s api.Service) string { return fmt.Sprint(len(s.Backends)) }},
				{head: "generation", wide: true, cell: func(s api.Service) string { return fmt.Sprint(s.Generation) }},
			})
		},
	}
	filter.register(cmd)
	return cmd
}

func serviceStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status SERVICE", Short: "show a service and who serves it", Args: exactly("SERVICE"), ValidArgsFunction: a.complete("services"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.showService(cmd.Context(), args[0]) },
	}
}

func (a *app) showService(ctx context.Context, ref string) error {
	got, err := get[api.Service](ctx, a, "/v1/services/"+segment(ref), nil)
	if err != nil {
		return err
	}
	s := got.value
	return a.show(shown{json: got.raw, names: []string{serviceName(s)}, text: func(p *page) {
		p.fields(
			field{"Name", serviceName(s)}, field{"Group", string(s.Group)}, field{"Port", s.Port}, field{"Expose", number(s.Expose)},
			field{"Generation", number(s.Generation)},
		)
		p.section("Backends")
		rows(p, s.Backends, []column[api.Backend]{
			{head: "instance", cell: func(b api.Backend) string { return string(b.Instance) }},
			{head: "node", cell: func(b api.Backend) string { return b.Node }},
			{head: "address", cell: func(b api.Backend) string { return b.Address }},
		})
	}})
}

func budgetName(b api.Budget) string { return string(b.Name) }

func budgetLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list the budgets of groups", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := list[api.Budget](cmd.Context(), a, "/v1/budgets", filter.query())
			if err != nil {
				return err
			}
			return showList(a, got, budgetName, []column[api.Budget]{
				{head: "name", cell: budgetName},
				{head: "ready", cell: func(b api.Budget) string { return fmt.Sprintf("%d/%d", b.Ready, b.Want) }},
				{head: "min ready", cell: func(b api.Budget) string { return fmt.Sprint(b.MinReady) }},
				{head: "max down", cell: func(b api.Budget) string { return fmt.Sprint(b.MaxDown) }},
				{head: "down", cell: downText},
				{head: "allowed", cell: func(b api.Budget) string { return fmt.Sprint(b.Allowed) }},
				{head: "rate", cell: rateText},
				{head: "next allowed", cell: nextAllowed},
			})
		},
	}
	filter.register(cmd)
	return cmd
}

func downText(b api.Budget) string {
	return fmt.Sprintf("%d (%d voluntary)", b.Down.Voluntary+b.Down.Involuntary, b.Down.Voluntary)
}

func rateText(b api.Budget) string {
	if b.Rate == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d in %s", b.Rate.Used, b.Rate.Max, b.Rate.Window)
}

func nextAllowed(b api.Budget) string {
	if b.Rate == nil || b.Rate.NextAllowed == nil {
		return ""
	}
	return stamp(b.Rate.NextAllowed)
}

func budgetStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status JOB/GROUP", Short: "show what a group can lose now", Args: exactly("JOB/GROUP"), ValidArgsFunction: a.complete("budgets"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, group, ok := strings.Cut(args[0], "/")
			if !ok || job == "" || group == "" {
				return usage("%q is not JOB/GROUP", args[0]).WithHint("list budgets with: outspan budget ls")
			}
			got, err := get[api.Budget](cmd.Context(), a, "/v1/budgets/"+segment(job)+"/"+segment(group), nil)
			if err != nil {
				return err
			}
			b := got.value
			return a.show(shown{json: got.raw, names: []string{budgetName(b)}, text: func(p *page) {
				p.fields(
					field{"Name", budgetName(b)}, field{"Scope", b.Scope}, field{"Ready", fmt.Sprintf("%d of %d", b.Ready, b.Want)},
					field{"Min ready", fmt.Sprint(b.MinReady)}, field{"Max down", fmt.Sprint(b.MaxDown)}, field{"Down", downText(b)},
					field{"Allowed now", fmt.Sprint(b.Allowed)}, field{"Rate", rateText(b)}, field{"Next allowed", nextAllowed(b)},
				)
			}})
		},
	}
}

func classLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list classes, the highest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := list[api.ClassView](cmd.Context(), a, "/v1/classes", filter.query())
			if err != nil {
				return err
			}
			return showList(a, got, func(c api.ClassView) string { return string(c.Name) }, []column[api.ClassView]{
				{head: "name", cell: func(c api.ClassView) string { return string(c.Name) }},
				{head: "rank", cell: func(c api.ClassView) string { return fmt.Sprint(c.Rank) }},
				{head: "default", cell: func(c api.ClassView) string { return yesNo(c.Default) }},
				{head: "jobs", cell: func(c api.ClassView) string { return fmt.Sprint(c.Jobs) }},
			})
		},
	}
	filter.register(cmd)
	return cmd
}
