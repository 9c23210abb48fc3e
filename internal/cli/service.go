package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
)

func serviceName(s api.Service) string { return string(s.Name) }

func serviceLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list services", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Services.List(cmd.Context(), filter.options())
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
	got, err := a.client().Services.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	s := got.Value
	return a.show(shown{json: got.Raw, names: []string{serviceName(s)}, text: func(p *page) {
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
		if len(s.Problems) > 0 {
			p.section("Closed ports")
			rows(p, s.Problems, []column[api.ServiceProblem]{
				{head: "node", cell: func(c api.ServiceProblem) string { return c.Node }},
				{head: "port", cell: func(c api.ServiceProblem) string { return fmt.Sprint(c.Port) }},
				{head: "code", cell: func(c api.ServiceProblem) string { return string(c.Code) }},
				{head: "reason", cell: func(c api.ServiceProblem) string { return c.Reason }},
			})
		}
	}})
}
