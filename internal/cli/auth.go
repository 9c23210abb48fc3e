package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/rights"
)

func authWhoAmI(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "show who you are to the servers, and what you may do", Args: term.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Auth.WhoAmI(cmd.Context(), client.ReadOptions{})
			if err != nil {
				return err
			}
			v := got.Value
			return a.Show(term.Result{JSON: got.Raw, Names: []string{v.Subject},
				Text: func(p *term.Page) { identityText(p, v) }})
		},
	}
}

func authCanI(a *app) *cobra.Command {
	var as string
	var asks []string
	cmd := &cobra.Command{
		Use: "can-i VERB [OBJECT]", Short: "say whether you, or somebody else, may do something",
		Args: term.Between(1, 2), ValidArgsFunction: completeWords(verbNames()...),
		Long: `Says whether you may do something, by which role, and exits with 1 if not. Without OBJECT, it is enough if there can be an object on which you may.
OBJECT is node/NAME, job/NAME, instance/ID or class/NAME; without a kind it is of that of the verb. With --as, which takes the right auth.read, it answers for somebody
else, and names the bindings that allow it to others. With --ask, it answers whether a group of the job may ask for all of this together; see outspan role verbs.`,
		Example: "outspan auth can-i node.drain n1\n" +
			"outspan auth can-i job.submit shop-web --as cert:alice --ask users=web --ask ports=443",
		RunE: func(cmd *cobra.Command, args []string) error {
			o := client.CanIOptions{As: as}
			if len(args) == 2 {
				o.Object = args[1]
			}
			for _, text := range asks {
				one, refusal := rights.ParseAsk(text)
				if refusal != nil {
					return refusal
				}
				o.Asks = append(o.Asks, one)
			}
			got, err := a.client().Auth.CanI(cmd.Context(), rights.Verb(args[0]), o)
			if err != nil {
				return err
			}
			v := got.Value
			answer := "no"
			if v.Allowed {
				answer = "yes"
			}
			err = a.Show(term.Result{JSON: got.Raw, Names: []string{answer},
				Text: func(p *term.Page) { permissionText(p, v) }})
			if err == nil && !v.Allowed {
				return term.Quiet{Code: term.ExitOther}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "answer for this subject, such as cert:alice or token:ci")
	cmd.Flags().StringArrayVar(&asks, "ask", nil,
		"with job.submit and a job: what the job asks for, as LIST=NAME, such as ports=443; repeatable")
	return cmd
}

// permissionText answers whether somebody may do something, with the grants that allow it or would.
func permissionText(p *term.Page, v api.Permission) {
	switch {
	case !v.Allowed:
		p.Line("no%s", withComma(strings.Join(v.Lacking, ", ")))
	case len(v.Grants) == 0:
		p.Line("yes, by the role %s", v.Role)
	}
	for i, g := range v.Grants {
		begin := "yes"
		if i > 0 {
			begin = "  also"
		}
		p.Line("%s%s, by the role %s", begin, withComma(limitsText(g, v.Object == "")), heldText(g))
	}
	for _, b := range v.Would {
		p.Line("  the role %s allows it to %s", b.Role, b.To)
	}
}

func withComma(text string) string {
	if text == "" {
		return ""
	}
	return ", " + text
}

// heldText names the role of a grant, and by what somebody has it.
func heldText(g api.HeldGrant) string {
	if g.Binding == "" {
		return string(g.Role) + " of the access token"
	}
	return fmt.Sprintf("%s, which %s has", g.Role, g.Binding)
}

// limitsText says on what a grant allows its verbs, and what the jobs may ask for that it submits. It is empty if
// nothing restricts the grant.
func limitsText(g api.HeldGrant, names bool) string {
	var parts []string
	for _, list := range []struct {
		word  string
		names []string
	}{{"jobs", g.Jobs}, {"nodes", g.Nodes}, {"classes", g.Classes}} {
		if names && len(list.names) > 0 {
			parts = append(parts, list.word+" "+strings.Join(list.names, ", "))
		}
	}
	text := ""
	if len(parts) > 0 {
		text = "on " + strings.Join(parts, " and ")
	}
	if !slices.Contains(g.Verbs, rights.SubmitJob) {
		return text
	}
	for _, list := range []struct {
		words string
		names []string
	}{{"as the users", g.Users}, {"with volumes below", g.VolumePaths}, {"with the ports", g.Ports},
		{"with the services", g.Services}, {"in the budgets", g.Budgets}} {
		if len(list.names) > 0 && !slices.Contains(list.names, "*") {
			text = strings.TrimPrefix(text+", "+list.words+" "+strings.Join(list.names, ", "), ", ")
		}
	}
	return text
}

func verbNames() (names []string) {
	for _, v := range rights.Verbs() {
		names = append(names, string(v.Verb))
	}
	return names
}

func bindingName(b api.Binding) string { return string(b.Role) + " " + b.To }

func authLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list who has which role", Args: term.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Auth.Bindings(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, got, bindingName, []term.Column[api.Binding]{
				{Head: "role", Cell: func(b api.Binding) string { return string(b.Role) }},
				{Head: "to", Cell: func(b api.Binding) string { return b.To }},
				{Head: "created by", Cell: func(b api.Binding) string { return string(b.CreatedBy) }},
			})
		},
	}
	filter.register(cmd)
	return cmd
}

func authGrant(a *app) *cobra.Command {
	return a.changeBinding("grant", "give a role to people or to a group", "is given",
		`Gives a role to people or to a group. TO is cert:NAME, token:NAME, oidc:ISSUER#SUB, a pattern such as cert:ci-*, or group:NAME. While nobody has changed rights, everybody with a
certificate of a person is an administrator. The first change makes that a binding that you see and can take away: outspan auth revoke admin 'cert:*'.`,
		"outspan auth grant operator cert:alice --dry-run\noutspan auth grant viewer 'cert:*'", client.Auth.Grant)
}

func authRevoke(a *app) *cobra.Command {
	return a.changeBinding("revoke", "take a role away again", "is taken away",
		`Takes a role away from people or from a group; TO is as auth ls shows it. Streams that somebody may not read any more end within a second. With --dry-run
it shows who would lose what. If nobody is an administrator any more, commands on a server over its unix socket still may do everything.`,
		"outspan auth revoke admin 'cert:*' --dry-run", client.Auth.Revoke)
}

// changeBinding returns auth grant or auth revoke.
func (a *app) changeBinding(verb, short, done, long, example string,
	change bindingChange) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: verb + " ROLE TO", Short: short, Args: term.Exactly("ROLE", "TO"), ValidArgsFunction: a.complete("roles"),
		Long: long, Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := api.BindingBody{Role: rights.RoleName(args[0]), To: args[1]}
			got, err := change(a.client().Auth, cmd.Context(), body, write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: []string{args[0]}, Text: func(p *term.Page) {
				p.Line("role %s %s: %s %s", args[0], write.would(done), args[1], write.done(got.Value.Index))
				rightsChanges(p, got.Value.Changes)
				rightsNotes(p, got.Value.Notes)
			}})
		},
	}
	write.register(cmd, "show who would gain and lose what, change nothing")
	return cmd
}

// rightsChanges prints what known people gain and lose.
func rightsChanges(p *term.Page, changes []api.RightsChange) {
	for _, one := range changes {
		for _, part := range [...]struct {
			word  string
			verbs []rights.Verb
		}{{"gains", one.Gains}, {"loses", one.Loses}, {"has on other things than before:", one.Differs}} {
			if len(part.verbs) > 0 {
				p.Line("  %s %s %s", one.Subject, part.word, rightsText(part.verbs))
			}
		}
		for _, change := range one.Asks {
			p.Line("  %s submits jobs with %s %s, and before with %s", one.Subject, change.List, asksText(change.After),
				asksText(change.Before))
		}
	}
}

// asksText names patterns of what jobs may ask for.
func asksText(patterns []string) string {
	switch {
	case len(patterns) == 0:
		return "none"
	case slices.Contains(patterns, "*"):
		return "any"
	}
	return strings.Join(patterns, ", ")
}

func rightsNotes(p *term.Page, notes []string) {
	for _, note := range notes {
		p.Line("  note: %s", note)
	}
}

// rightsText names a few verbs, and counts many.
func rightsText(verbs []rights.Verb) string {
	const shown = 8
	if len(verbs) <= shown {
		return strings.Join(asTexts(verbs), ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(asTexts(verbs[:shown]), ", "), len(verbs)-shown)
}
