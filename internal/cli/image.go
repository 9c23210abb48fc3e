package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func imageName(i api.Image) string { return i.Digest }

// shortDigest returns the first 12 digits of a digest.
func shortDigest(i api.Image) string {
	digits := strings.TrimPrefix(i.Digest, "sha256:")
	return digits[:min(len(digits), 12)]
}

func imagesText(n int) string {
	if n == 1 {
		return "1 image"
	}
	return fmt.Sprintf("%d images", n)
}

func imageColumns(a *app) []term.Column[api.Image] {
	return []term.Column[api.Image]{
		{Head: "node", Cell: func(i api.Image) string { return i.Node }},
		{Head: "image", Cell: func(i api.Image) string { return strings.Join(i.Names, ", ") }},
		{Head: "digest", Cell: shortDigest},
		{Head: "state", Cell: func(i api.Image) string { return string(i.State) }},
		{Head: "size", Cell: func(i api.Image) string { return model.SizeText(i.Bytes) }},
		{Head: "instances", Cell: func(i api.Image) string { return fmt.Sprint(i.Instances) }},
		{Head: "waiting", Cell: func(i api.Image) string { return fmt.Sprint(i.Claims) }},
		{Head: "last used", Cell: func(i api.Image) string { return a.Age(i.UsedAt) }},
		{Head: "reason", Cell: func(i api.Image) string { return i.Reason }},
	}
}

func imageLs(a *app) *cobra.Command {
	var o client.ImageListOptions
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list the images on nodes, and who uses them", Args: term.Exactly(),
		Long: "Lists the images of containers on the nodes, as their agents tell now.\nThe size counts layers that images " +
			"share for each of them. Of a pull it is what was fetched so far. Waiting are\ninstances that are placed on the " +
			"node once the image is there. The last use is exact to 10 minutes.",
		Example: "outspan image ls\noutspan image ls --node n1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Images.List(cmd.Context(), o)
			if err != nil {
				return err
			}
			all := got.Value
			return a.Show(term.Result{JSON: got.Raw, Names: namesOf(all.Items, imageName), Text: func(p *term.Page) {
				term.Rows(p, all.Items, imageColumns(a))
				for _, n := range all.RuntimeDown {
					a.Note("the images of node %s are not listed: %s", n.Node, n.Reason)
				}
				for _, node := range all.Silent {
					if !slices.ContainsFunc(all.RuntimeDown, func(n api.NodeReason) bool { return n.Node == node }) {
						a.Note("the agent of node %s does not answer: its images are not listed", node)
					}
				}
				if all.Hidden > 0 {
					a.Note("%d more nodes that you may not see", all.Hidden)
				}
			}})
		},
	}
	cmd.Flags().StringVar(&o.Node, "node", "", "only on this node")
	return cmd
}

func imagePrune(a *app) *cobra.Command {
	var write writeFlags
	var node string
	cmd := &cobra.Command{
		Use: "prune --node NODE", Short: "delete the images on a node that nothing there needs now", Args: term.Exactly(),
		Long: "Deletes the images on a node that no instance there runs or may be started with, that no instance waits\n" +
			"for, and that are not being pulled. An agent deletes some by itself while their disk is too full: see\n" +
			"images_disk_high in its configuration.",
		Example: "outspan image prune --node n1 --dry-run\noutspan image prune --node n1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if node == "" {
				return term.Usage("which node?").WithHint("give --node NODE; see: outspan image ls")
			}
			got, err := a.client().Images.Prune(cmd.Context(), node, write.options())
			if err != nil {
				return err
			}
			done := got.Value
			return a.Show(term.Result{JSON: got.Raw, Names: namesOf(done.Items, imageName), Text: func(p *term.Page) {
				term.Rows(p, done.Items, imageColumns(a)[:5])
				if done.DryRun {
					p.Line("%s of node %s would be deleted, which frees %s (dry run: nothing was changed)",
						imagesText(len(done.Items)), done.Node, model.SizeText(done.Bytes))
				} else {
					p.Line("%s of node %s deleted, %s freed", imagesText(len(done.Items)), done.Node,
						model.SizeText(done.Bytes))
				}
				if done.More {
					a.Note("not all that nothing needs are deleted yet: run it again")
				}
			}})
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "the node (required)")
	write.register(cmd, "say what would be deleted, and change nothing")
	return cmd
}
