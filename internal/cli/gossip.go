package cli

import (
	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
)

func gossipKey(a *app) *cobra.Command {
	cmd := local.GossipKey(&a.Console)
	cmd.AddCommand(gossipKeyLs(a), gossipKeyRotate(a))
	return cmd
}

func gossipKeyLs(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list the keys that encrypt gossip, the oldest first",
		Args: term.Exactly(), Example: "outspan gossip key ls",
		Long: "Lists the gossip keys of a cluster with tls { managed = true }, and the servers and agents that don't use " +
			"exactly these keys yet. It shows no secret. In other clusters the key is a file on each machine.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Trust.GossipKeys(cmd.Context(), client.ReadOptions{})
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: gossipNames(&got.Value), Text: func(p *term.Page) {
				showGossipKeys(p, &got.Value)
			}})
		},
	}
}

func gossipKeyRotate(a *app) *cobra.Command {
	var write writeFlags
	var force bool
	cmd := &cobra.Command{
		Use: "rotate", Short: "replace the key that encrypts gossip", Args: term.Exactly(),
		Example: "outspan gossip key rotate\noutspan gossip key rotate --force",
		Long: `Begins to replace the gossip key of a cluster with tls { managed = true }. It does not wait for the end, which outspan gossip key ls shows. Every server and
agent first gets the new key, then all encrypt with it, and then the old one is dropped. Each step waits until all members have done the one before, so nobody
loses contact. While a rotation is in progress, the command shows how far it is. A revocation rotates the key by itself.

A member that is off is waited for until it has been off, or the step has lasted, for 10 minutes; with --force not at all. It gets the keys when it is back. The
other members are always waited for; with --force for 10 minutes in each step, and then they may not hear the others until they take the keys. --force counts for the rotation in progress, until another server leads.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Trust.RotateGossipKey(cmd.Context(),
				client.RotateGossipOptions{WriteOptions: write.options(), Force: force})
			if err != nil {
				return err
			}
			v := &got.Value
			return a.Show(term.Result{JSON: got.Raw, Names: gossipNames(&v.Gossip), Text: func(p *term.Page) {
				if v.Begun {
					p.Line("a new gossip key %s %s", write.would("is handed out"), write.done(v.Index))
				} else {
					p.Line("a rotation is in progress already")
				}
				showGossipKeys(p, &v.Gossip)
				if !write.dryRun {
					p.Line("  how far it is: outspan gossip key ls")
				}
			}})
		},
	}
	write.register(cmd, "check only, make no key")
	cmd.Flags().BoolVar(&force, "force", false,
		"don't wait for servers and agents that are off, and 10 minutes for the others")
	return cmd
}

func gossipNames(v *api.GossipKeys) []string {
	return namesOf(v.Keys, func(k api.GossipKey) string { return string(k.Name) })
}

func showGossipKeys(p *term.Page, v *api.GossipKeys) {
	term.Rows(p, v.Keys, []term.Column[api.GossipKey]{
		{Head: "name", Cell: func(k api.GossipKey) string { return string(k.Name) }},
		{Head: "phase", Cell: func(k api.GossipKey) string { return string(k.Phase) }},
		{Head: "since", Cell: func(k api.GossipKey) string { return term.Stamp(&k.Since) }},
		{Head: "created index", Cell: func(k api.GossipKey) string { return term.Number(k.CreatedIndex) }},
		{Head: "digest", Cell: func(k api.GossipKey) string { return k.Digest }},
	})
	if v.Due {
		p.Line("a revoked member may know %s: a new key replaces it, at most once a minute", v.Keys[len(v.Keys)-1].Name)
	}
	switch {
	case v.LackingCount == 0:
		p.Line("all servers and agents use these keys")
		return
	case v.Rotating:
		p.Line("servers and agents that don't use these keys yet: %d; the rotation waits for %d of them", v.LackingCount,
			v.WaitsFor)
	default:
		p.Line("servers and agents that don't use exactly these keys yet: %d", v.LackingCount)
	}
	for _, m := range v.Lacking {
		switch {
		case m.Absent && v.Rotating && !m.Waits:
			p.Line("  %s (it is off, and not waited for)", m.Subject)
		case m.Absent:
			p.Line("  %s (it is off)", m.Subject)
		default:
			p.Line("  %s", m.Subject)
		}
	}
	if more := v.LackingCount - len(v.Lacking); more > 0 {
		p.Line("  and %d more", more)
	}
}
