package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/rolefile"
)

// bindingChange is client.Auth.Grant or client.Auth.Revoke.
type bindingChange func(client.Auth, context.Context, api.BindingBody, client.WriteOptions) (
	client.Response[api.BindingReply], error)

func roleName(r api.Role) string { return string(r.Name) }

func roleLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list the roles, the built-in ones too", Args: term.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Auth.Roles(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, got, roleName, []term.Column[api.Role]{
				{Head: "name", Cell: roleName},
				{Head: "built in", Cell: func(r api.Role) string { return term.YesNo(r.Builtin) }},
				{Head: "grants", Cell: func(r api.Role) string { return fmt.Sprint(len(r.Allow)) }},
				{Head: "verbs", Cell: func(r api.Role) string {
					var verbs []string
					for _, g := range r.Allow {
						verbs = append(verbs, asTexts(g.Verbs)...)
					}
					if r.Builtin && len(verbs) > 4 {
						return fmt.Sprintf("%s, ... see: outspan role show %s", strings.Join(verbs[:4], ", "), r.Name)
					}
					return strings.Join(verbs, ", ")
				}},
			})
		},
	}
	filter.register(cmd)
	return cmd
}

func roleShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "show a role as the file that sets it", Args: term.Exactly("NAME"),
		ValidArgsFunction: a.complete("roles"),
		Example:           "outspan role show shop >shop.hcl\noutspan role show operator | sed s/operator/ours/ >ours.hcl",
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.client().Auth.Role(cmd.Context(), rights.RoleName(args[0]), client.ReadOptions{})
			if err != nil {
				return err
			}
			text, err := rolefile.Print(rights.Role{Name: got.Value.Name, Allow: got.Value.Allow})
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: args, Text: func(p *term.Page) {
				for line := range strings.Lines(text) {
					p.Line("%s", strings.TrimSuffix(line, "\n"))
				}
			}})
		},
	}
}

func roleSet(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: "set FILE", Short: "make or replace the roles of a file, and give them as its bindings say",
		Args: term.Exactly("FILE"),
		Long: `Reads a file (or standard input, for -) with blocks role { } and binding { }. Each role is made or replaced as a whole. Each binding is added; none is taken away:
see outspan auth revoke. The whole file is one change: if any part of it is refused, nothing is changed. The verbs are listed by
outspan role verbs.`,
		Example: "outspan role show deployer | sed s/deployer/shop/ >shop.hcl\noutspan role set shop.hcl --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := local.ReadFile(&a.Console, args[0], local.MaxJobFile)
			if err != nil {
				return err
			}
			file, err := rolefile.Parse(args[0], src)
			if err != nil {
				return err
			}
			return a.setRoles(cmd.Context(), file, write)
		},
	}
	write.register(cmd, "check, and show who would gain and lose what; change nothing")
	return cmd
}

// setRoles sets the roles of a file and adds its bindings, all at once or not at all.
func (a *app) setRoles(ctx context.Context, file rolefile.File, write writeFlags) error {
	var body api.RightsBody
	var names []string
	for _, r := range file.Roles {
		body.Roles, names = append(body.Roles, api.NamedRole{Name: r.Name, Allow: r.Allow}), append(names, string(r.Name))
	}
	for _, b := range file.Bindings {
		body.Bindings, names = append(body.Bindings, api.BindingBody{Role: b.Role, To: b.To}), append(names, string(b.Role))
	}
	got, err := a.client().Auth.SetRights(ctx, body, write.options())
	if err != nil {
		return err
	}
	return a.Show(term.Result{JSON: got.Raw, Names: names, Text: func(p *term.Page) {
		for _, r := range file.Roles {
			p.Line("role %s %s %s", r.Name, write.would("is set"), write.done(got.Value.Index))
		}
		for _, b := range file.Bindings {
			p.Line("role %s %s: %s %s", b.Role, write.would("is given"), b.To, write.done(got.Value.Index))
		}
		rightsChanges(p, got.Value.Changes)
		rightsNotes(p, got.Value.Notes)
	}})
}

func roleRm(a *app) *cobra.Command {
	return oneChange{noun: "role", verb: "rm", short: "remove a role that nobody has", arg: "NAME", kind: "roles",
		done: "is removed",
		do: func(ctx context.Context, name string, o client.WriteOptions) (changed, error) {
			got, err := a.client().Auth.RemoveRole(ctx, rights.RoleName(name), o)
			return changed{got.Raw, name, got.Value.Index}, err
		}}.command(a)
}

func roleVerbs(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "verbs", Short: "list what a role can allow", Args: term.Exactly(),
		Long: `Lists every verb, what it allows, and by which lists of names a grant can restrict it. A role can also name all verbs of a noun ("job.*"), or all verbs ("*").`,
		RunE: func(*cobra.Command, []string) error {
			list := rights.Verbs()
			result, err := term.ResultOf(list, verbNames(), func(p *term.Page) {
				term.Rows(p, list, []term.Column[rights.VerbText]{
					{Head: "verb", Cell: func(v rights.VerbText) string { return string(v.Verb) }},
					{Head: "restricted by", Cell: func(v rights.VerbText) string { return strings.Join(v.Lists(), ", ") }},
					{Head: "allows to", Cell: func(v rights.VerbText) string { return v.Text }},
				})
			})
			if err != nil {
				return err
			}
			return a.Show(result)
		},
	}
}
