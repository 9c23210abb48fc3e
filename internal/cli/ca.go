package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func caStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "show the CAs, and what a rotation waits for", Args: term.Exactly(),
		Long: "Shows the CAs of the cluster and, while one replaces another, the step of that and the members that it " +
			"waits for.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().CA.Status(cmd.Context(), client.ReadOptions{})
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: caNames(got.Value), Text: func(p *term.Page) {
				showCA(p, got.Value)
			}})
		},
	}
}

func caRotate(a *app) *cobra.Command {
	var write writeFlags
	var force bool
	grace := term.DurationFlag{Value: new(model.Duration)}
	cmd := &cobra.Command{
		Use: "rotate [--force [NAME]...]", Short: "replace the CA, with its key", Args: cobra.ArbitraryArgs,
		Long: `Replaces the CA that signs the certificates. The leader makes a new one, and the command returns; the rest goes on by itself, also with another leader:
every member gets to trust both CAs, then every member gets a certificate of the new one, and then the old one is dropped. Each step waits for every server
and for every agent that may connect: also for one whose certificate has expired, until the setting rejoin_grace no longer lets it return by itself. If a
rotation is in progress, the command shows how far it is.

With the old CA end the certificates of people, and the join tokens that were made before the new CA was used, also for machines that wait to be approved:
make new ones after that. With --grace the
servers accept certificates of people of the old CA for longer. But each person needs a new ca.pem, such as that of a server, as soon as the new CA is used.

--force leaves members behind: those with the names or, without names, all that are off now. They must join again with a token.`,
		Example: "outspan ca rotate --dry-run\noutspan ca rotate --grace 24h\noutspan ca rotate --force n7",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && !force {
				return term.Usage("%s: ca rotate takes names only with --force", strings.Join(args, " ")).
					WithHint("to leave these members behind write: outspan ca rotate --force %s", strings.Join(args, " "))
			}
			body := api.RotateCABody{Force: force, Names: args}
			if grace.Given {
				body.Grace = grace.Value
			}
			got, err := a.client().CA.Rotate(cmd.Context(), body, write.options())
			if err != nil {
				return err
			}
			ca := got.Value.CA
			if ca == nil {
				ca = &api.CA{} // no server of this version leaves it out
			}
			return a.Show(term.Result{JSON: got.Raw, Names: caNames(*ca), Text: func(p *term.Page) {
				if write.dryRun {
					p.Line("the CA would be replaced %s", write.done(got.Value.Index))
				} else {
					p.Line("the CA is replaced in four steps, which go on by themselves %s", write.done(got.Value.Index))
					p.Line("  how far it is: outspan ca status")
				}
				p.Line("")
				showCA(p, *ca)
			}})
		},
	}
	write.register(cmd, "check only: show what the rotation would wait for")
	cmd.Flags().BoolVar(&force, "force", false, "leave members behind, which must join again with a token")
	cmd.Flags().Var(&grace, "grace",
		"how long servers accept certificates of the old CA after the new one is used (default 0s)")
	return cmd
}

func caNames(ca api.CA) (names []string) {
	for _, one := range ca.CAs {
		names = append(names, string(one.Name))
	}
	return names
}

func showCA(p *term.Page, ca api.CA) {
	for _, one := range ca.CAs {
		p.Line("%s  %s  until %s  SHA-256 %s", one.Name, one.Phase, term.Stamp(&one.NotAfter), one.Fingerprint)
	}
	r := ca.Rotation
	if r == nil {
		return
	}
	p.Section("%s", stepText(r))
	if r.Waiting > 0 {
		names, off := waitingText(r)
		p.Line("  waits for %s", names)
		if off {
			p.Line("  next: start those that are off, or leave them behind: outspan ca rotate --force; if they never come " +
				"back: outspan node revoke NAME, or outspan server revoke NAME")
		}
	}
	if len(r.Passed) > 0 {
		p.Line("  left behind, must join again with a token: %s", strings.Join(r.Passed, ", "))
	}
	if r.Step == api.CAForget {
		return
	}
	p.Line("  certificates of people end with the old CA")
	p.Line("  %d join tokens end with the old CA: make new ones after that with: outspan token create", ca.Tokens)
	if ca.Newcomers > 0 {
		p.Line("  %d newcomers that wait must join again with a new token; to admit them before: outspan token waiting",
			ca.Newcomers)
	}
}

// waitingText lists the members that a rotation waits for. off says that one of them is off.
func waitingText(r *api.CARotation) (names string, off bool) {
	var all []string
	for _, m := range r.WaitingFor {
		text := m.Subject
		if m.Absent {
			text += " (off)"
			off = true
		}
		all = append(all, text)
	}
	if more := r.Waiting - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", "), off
}

func stepText(r *api.CARotation) string {
	switch r.Step {
	case api.CADistribute:
		return fmt.Sprintf("step 1 of 4: every member gets to trust %s too", r.To)
	case api.CARenew:
		return fmt.Sprintf("step 2 of 4: every member gets a certificate of %s", r.To)
	case api.CAGrace:
		return fmt.Sprintf("step 3 of 4: the old CA stays trusted until %s", term.Stamp(r.KeptUntil))
	case api.CAForget:
		return "step 4 of 4: the old CA is dropped, and members stop trusting it"
	}
	return string(r.Step)
}
