package cli

import (
	"context"
	"fmt"
	"path"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

func volumeFind(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "find", Short: "list data on nodes' disks that nothing uses and that the servers don't keep", Args: exactly(),
		Long: `Asks every agent which data of local volumes is on its disk, and lists what the servers neither use nor keep as an old copy: after a restore such as where a
volume was moved to since the snapshot was saved, or what a node has whose data was given up (outspan node forget --lose-data) and that came back. Volumes of one
slot that were in use together are one line. The age says whether the data is newer or older than what is in use. Nothing is changed.`,
		Example: "outspan volume find\noutspan volume attach db/main/0/data --node n2 --epoch 281474976710742",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Volumes.Found(cmd.Context())
			if err != nil {
				return err
			}
			var names []string
			for _, f := range got.Value.Items {
				names = append(names, string(f.Volume))
			}
			return a.show(shown{json: got.Raw, names: names, text: func(p *page) {
				rows(p, got.Value.Items, []column[api.FoundVolume]{
					{head: "node", cell: func(f api.FoundVolume) string { return f.Node }},
					{head: "volume", cell: func(f api.FoundVolume) string { return string(f.Volume) }},
					{head: "epoch", cell: func(f api.FoundVolume) string { return fmt.Sprint(f.Epoch) }},
					{head: "age", cell: func(f api.FoundVolume) string { return string(f.Age) }},
					{head: "last written", cell: func(f api.FoundVolume) string { return stamp(&f.Written) }},
				})
				for _, f := range got.Value.Items {
					p.line("to put it to use: %s", attachFound(f))
				}
				sayNotAsked(p, got.Value.Silent)
			}})
		},
	}
}

// attachFound is the command that puts found data to use.
func attachFound(f api.FoundVolume) string {
	return fmt.Sprintf("outspan volume attach %s --node %s --epoch %d", f.Volume, f.Node, f.Epoch)
}

func sayNotAsked(p *page, silent []string) {
	for _, node := range silent {
		p.line("the agent of node %s does not answer: data on its disk is not listed", node)
	}
}

// foundCopies is what was found of a volume's slot on a node, by the epoch that volume find shows.
func (a *app) foundCopies(ctx context.Context, volume, node string, epoch uint64) (map[string]uint64, error) {
	got, err := a.client().Volumes.Found(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range got.Value.Items {
		if _, has := f.Copies[path.Base(volume)]; has && f.Node == node && f.Epoch == epoch && path.Dir(string(f.Volume)) == path.Dir(volume) {
			return f.Copies, nil
		}
	}
	return nil, model.Refuse(model.CodeNotFound, "no data of volume %s with epoch %d was found on node %s", volume, epoch, node).WithHint("list what was found: outspan volume find")
}

// showFound says which newer data than that of a restored state is on the nodes' disks.
func (a *app) showFound(p *page, found api.FoundVolumes) {
	for _, f := range found.Items {
		if f.Age != api.FoundOlder {
			p.line("node %s has data of volume %s that the restored state does not know; to put it to use once the restore is confirmed: %s", f.Node, f.Volume, attachFound(f))
		}
	}
	sayNotAsked(p, found.Silent)
}
