package cli

import (
	"github.com/spf13/cobra"

	"github.com/outspan/outspan/client"
)

// listFlags are those of every ls.
type listFlags struct {
	filters     []string
	consistency string
}

func (f *listFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.filters, "filter", nil, "only what matches a field of its JSON: field=value, field!=value or field~text; repeat it for more conditions")
	cmd.Flags().StringVar(&f.consistency, "consistency", "", "default, consistent or stale (any server, also without a leader)")
}

func (f *listFlags) options() client.ListOptions {
	return client.ListOptions{ReadOptions: client.ReadOptions{Consistency: client.Consistency(f.consistency)}, Filter: f.filters}
}
