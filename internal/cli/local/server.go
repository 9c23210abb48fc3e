package local

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// ServerInit returns the command server init.
func ServerInit(t *term.Console) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Example: "outspan server init --data-dir /var/lib/outspan",
		Use:     "init", Short: "let a new server begin its cluster without waiting for its join addresses",
		Args: term.Exactly(),
		Long: `A new server with bootstrap_expect = 1 and addresses in retry_join begins a cluster only once each address has answered: behind one that is
silent there may be the cluster that it belongs to. Use this only where you know that there is none. It is for a server on this machine, which may run
already. One that is a member of a cluster refuses it.`,
		RunE: func(*cobra.Command, []string) error {
			if dir == "" {
				return term.Usage("server init needs --data-dir").WithHint("write: outspan server init --data-dir DIR")
			}
			if err := cluster.BeginAlone(dir); err != nil {
				return err
			}
			s, err := term.ResultOf(map[string]string{"data_dir": dir}, []string{dir}, func(p *term.Page) {
				p.Line("the server of %s begins a cluster without waiting for its join addresses", dir)
				p.Line("  next: start it, unless it runs; then: outspan server members")
			})
			if err != nil {
				return err
			}
			return t.Show(s)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "data directory of the new server")
	return cmd
}

// ServerRecover returns the command server recover.
func ServerRecover(t *term.Console) *cobra.Command {
	var cfg cluster.RecoverConfig
	var snapshot string
	var yes bool
	cmd := &cobra.Command{
		Example: `outspan server recover --data-dir /var/lib/outspan --advertise 10.0.0.1:7640 --yes
outspan server recover --data-dir /var/lib/outspan --advertise 10.0.0.1:7640 --snapshot monday.snap --yes`,
		Use: "recover", Short: "begin again with one server, when a majority is lost for good", Args: term.Exactly(),
		Long: `Makes one stopped server the whole cluster. Use it only when the majority of servers can't come back: what they had acknowledged and this one
had not yet received is lost. Run it on one server only; the others join it with empty data directories. If the cluster makes its certificates itself
(tls { managed = true }), each keeps the directory tls and the file keyring.

With --snapshot it makes that server's data directory from a saved state: for when all servers are lost. The directory must be missing, or have nothing
but the keys of a server: the directory tls and the file keyring. If the cluster makes its certificates itself (tls { managed = true }), the server
needs the keyring: put it there with outspan server keyring import, before or after. It makes what is missing in tls when it starts. It is refused if tls
has a CA that the snapshot lacks: then the CA was replaced between the two, and machines of one would not know those of the other.
All join tokens are revoked at that moment. Agents return with the newest certificate that they have; those that joined after the state was saved join
again. Members that were revoked after that are good again: revoke them again.
The cluster keeps its id, so agents take up with the new server at the addresses that they know, with what they run and their volumes.

Start the server afterwards. As after a restored snapshot, agents stop nothing that the servers don't know until you say that what runs is right:
outspan settings resume restore.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cfg.DataDir == "":
				return term.Usage("server recover needs --data-dir").
					WithHint("write: outspan server recover --data-dir DIR --advertise HOST:7640 --yes")
			case cfg.Address == "":
				return term.Usage("server recover needs the address of the server").
					WithHint("add --advertise HOST:7640, as it will listen")
			case !yes:
				return term.Usage("server recover forgets all other servers of the cluster").
					WithHint("if they can't come back, say so with --yes")
			}
			if snapshot != "" {
				f, err := os.Open(snapshot)
				if err != nil {
					return term.Usage("can't read the snapshot: %v", err)
				}
				defer f.Close()
				cfg.Snapshot = f
			}
			cfg.Keep = []string{keyring.FileName, filepath.Base(transport.ManagedDir(cfg.DataDir).Path())}
			cfg.Check = func(s *fsm.State) error { return sameCA(s, cfg.DataDir) }
			got, err := cluster.Recover(cfg)
			if err != nil {
				return err
			}
			r := recovered{ID: got.ID, Address: cfg.Address, Trust: trustAfter(&got.State, cfg.DataDir)}
			s, err := term.ResultOf(r, []string{string(r.ID)}, func(p *term.Page) {
				p.Line("server %s at %s is the only member now", r.ID, cfg.Address)
				r.Trust.show(p, cfg.DataDir)
				if r.Trust == nil {
					p.Line("  next: start it, then add others: start them with empty data directories, or outspan server join " +
						"--address HOST:7642")
				} else {
					p.Line("  next: start it, then start the others with data directories that have nothing but tls and keyring; " +
						"those that lost them join again: outspan server revoke NAME, then outspan join --server with a new token")
				}
				p.Line("  agents stop nothing that it does not know; what that would stop: outspan settings resume restore " +
					"--dry-run; confirm with: outspan settings resume restore")
			})
			if err != nil {
				return err
			}
			return t.Show(s)
		},
	}
	cmd.Flags().StringVar(&cfg.DataDir, "data-dir", "", "data directory of the stopped server")
	cmd.Flags().StringVar(&cfg.Cluster, "cluster", transport.DefaultCluster, "name of the cluster, as in its files")
	cmd.Flags().StringVar(&cfg.Address, "advertise", "", "host:port at which others will reach it")
	cmd.Flags().
		StringVar(&snapshot, "snapshot", "",
			"file of a saved state to begin from; the data directory must be missing, or have only keys")
	cmd.Flags().
		StringVar(&cfg.Supersedes, "supersedes", "",
			"lineage of an earlier recovery that left this server behind and is lost for good")
	cmd.Flags().BoolVar(&yes, "yes", false, "the other servers are lost for good")
	return cmd
}

// recovered is the result of the command server recover.
type recovered struct {
	ID      model.ServerID  `json:"id"`
	Address string          `json:"address"`
	Trust   *recoveredTrust `json:"trust,omitempty"` // only if the cluster makes its certificates itself
}
