package cli

import (
	"net/url"

	"github.com/spf13/cobra"
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

func (f *listFlags) query() url.Values {
	q := url.Values{}
	for _, one := range f.filters {
		addFilter(q, one)
	}
	if f.consistency != "" {
		q.Set("consistency", f.consistency)
	}
	return q
}

func addFilter(q url.Values, condition string) {
	if old := q.Get("filter"); old != "" {
		condition = old + "," + condition
	}
	q.Set("filter", condition)
}
