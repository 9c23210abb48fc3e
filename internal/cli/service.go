package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
)

func serviceName(s api.Service) string { return string(s.Name) }

func serviceLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list services", Args: term.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Services.List(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, got, serviceName, []term.Column[api.Service]{
				{Head: "name", Cell: serviceName},
				{Head: "group", Cell: func(s api.Service) string { return string(s.Group) }},
				{Head: "port", Cell: func(s api.Service) string { return s.Port }},
				{Head: "expose", Cell: func(s api.Service) string { return term.Number(s.Expose) }},
				{Head: "backends", Cell: func(s api.Service) string { return fmt.Sprint(len(s.Backends)) }},
				{Head: "generation", Wide: true, Cell: func(s api.Service) string { return fmt.Sprint(s.Generation) }},
			})
		},
	}
	filter.register(cmd)
	return cmd
}

func serviceStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status SERVICE", Short: "show a service and who serves it", Args: term.Exactly("SERVICE"),
		ValidArgsFunction: a.complete("services"),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.showService(cmd.Context(), args[0]) },
	}
}

func (a *app) showService(ctx context.Context, ref string) error {
	got, err := a.client().Services.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	s := got.Value
	return a.Show(term.Result{JSON: got.Raw, Names: []string{serviceName(s)}, Text: func(p *term.Page) {
		p.Fields(
			term.Field{"Name", serviceName(s)}, term.Field{"Group", string(s.Group)}, term.Field{"Port", s.Port},
			term.Field{"Expose", term.Number(s.Expose)},
			term.Field{"Generation", term.Number(s.Generation)},
		)
		p.Section("Backends")
		term.Rows(p, s.Backends, []term.Column[api.Backend]{
			{Head: "instance", Cell: func(b api.Backend) string { return string(b.Instance) }},
			{Head: "node", Cell: func(b api.Backend) string { return b.Node }},
			{Head: "address", Cell: func(b api.Backend) string { return b.Address }},
		})
		if len(s.Problems) > 0 {
			p.Section("Closed ports")
			term.Rows(p, s.Problems, []term.Column[api.ServiceProblem]{
				{Head: "node", Cell: func(c api.ServiceProblem) string { return c.Node }},
				{Head: "port", Cell: func(c api.ServiceProblem) string { return fmt.Sprint(c.Port) }},
				{Head: "code", Cell: func(c api.ServiceProblem) string { return string(c.Code) }},
				{Head: "reason", Cell: func(c api.ServiceProblem) string { return c.Reason }},
			})
		}
	}})
}
