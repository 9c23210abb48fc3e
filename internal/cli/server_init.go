package cli

import (
	"github.com/spf13/cobra"

	"github.com/outspan/outspan/cluster"
)

func serverInit(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Example: "outspan server init --data-dir /var/lib/outspan",
		Use:     "init", Short: "let a new server begin its cluster without waiting for its join addresses", Args: exactly(),
		Long: `A new server with bootstrap_expect = 1 and addresses in retry_join begins a cluster only once each address has answered: behind one that is
silent there may be the cluster that it belongs to. Use this only where you know that there is none. It is for a server on this machine, which may run
already. One that is a member of a cluster refuses it.`,
		RunE: func(*cobra.Command, []string) error {
			if dir == "" {
				return usage("server init needs --data-dir").WithHint("write: outspan server init --data-dir DIR")
			}
			if err := cluster.BeginAlone(dir); err != nil {
				return err
			}
			s, err := shownValue(map[string]string{"data_dir": dir}, []string{dir}, func(p *page) {
				p.line("the server of %s begins a cluster without waiting for its join addresses", dir)
				p.line("  next: start it, unless it runs; then: outspan server members")
			})
			if err != nil {
				return err
			}
			return a.show(s)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "data directory of the new server")
	return cmd
}
