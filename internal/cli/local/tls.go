package local

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// writtenFiles is the result of commands that write certificates or keys: the paths of the files.
type writtenFiles struct {
	CA   string `json:"ca,omitempty"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key"`
}

// TLSCA returns the command tls ca.
func TLSCA(t *term.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ca", Short: "the cluster's certificate authority",
	}
	var dir string
	var options transport.CAOptions
	var ttl term.DurationFlag
	create := &cobra.Command{
		Use: "create", Short: "make a CA: ca.pem, which every machine needs, and ca-key.pem, which only you need",
		Args:    term.Exactly(),
		Example: "outspan tls ca create --dir ./certs",
		RunE: func(_ *cobra.Command, _ []string) error {
			options.TTL = ttl.Length()
			files, err := transport.CreateCA(dir, options)
			if err != nil {
				return err
			}
			s, err := term.ResultOf(writtenFiles{CA: files.Cert, Key: files.Key},
				[]string{files.Cert, files.Key}, func(p *term.Page) {
					p.Line("wrote %s (every server, agent and user needs it)", files.Cert)
					p.Line("wrote %s (keep it away from the cluster: who has it can be anybody)", files.Key)
				})
			if err != nil {
				return err
			}
			return t.Show(s)
		},
	}
	create.Flags().StringVar(&dir, "dir", ".", "where to write")
	create.Flags().StringVar(&options.Cluster, "cluster", transport.DefaultCluster,
		"name of the cluster, as in the files of servers and agents")
	ttl.RegisterTTL(create, "how long it is valid, such as 3650d (default: 10 years)")
	create.Flags().
		BoolVar(&options.Force, "force", false,
			"replace a CA that is there: every certificate it issued is refused from then on")
	cmd.AddCommand(create)
	return cmd
}

// TLSCert returns the command tls cert.
func TLSCert(t *term.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cert", Short: "certificates of servers, agents and people",
	}
	var dir, server, agent, cli string
	var hosts []string
	var force bool
	var ttl term.DurationFlag
	create := &cobra.Command{
		Use: "create --server|--agent|--cli NAME", Short: "make a certificate of one role", Args: term.Exactly(),
		Example: "outspan tls cert create --server s1 --host s1.lan,10.0.0.1 --dir ./certs\n" +
			"outspan tls cert create --agent n1 --dir ./certs\noutspan tls cert create --cli alice --ttl 30d --dir ./certs",
		RunE: func(cmd *cobra.Command, _ []string) error {
			request := transport.CertRequest{Hosts: hosts, TTL: ttl.Length()}
			given := 0
			for _, one := range [...]struct {
				role pki.Role
				name string
			}{{pki.RoleServer, server}, {pki.RoleAgent, agent}, {pki.RoleCLI, cli}} {
				if cmd.Flags().Changed(string(one.role)) {
					request.Role, request.Name = one.role, one.name
					given++
				}
			}
			if given != 1 {
				return term.Usage("%s needs exactly one of --server, --agent and --cli", cmd.CommandPath()).
					WithHint("for example: outspan tls cert create --cli %s", term.First(t.Env("USER"), "alice"))
			}
			files, err := transport.IssueCert(dir, request, force)
			if err != nil {
				return err
			}
			s, err := term.ResultOf(writtenFiles{Cert: files.Cert, Key: files.Key},
				[]string{files.Cert, files.Key}, func(p *term.Page) {
					p.Line("wrote %s", files.Cert)
					p.Line("wrote %s", files.Key)
				})
			if err != nil {
				return err
			}
			return t.Show(s)
		},
	}
	fs := create.Flags()
	fs.StringVar(&server, "server", "", "for a server of this name")
	fs.StringVar(&agent, "agent", "", "for the agent of the node of this name")
	fs.StringVar(&cli, "cli", "", "for a person or script of this name")
	fs.StringSliceVar(&hosts, "host", nil,
		"further DNS names and IP addresses, for browsers and curl; outspan itself needs none")
	fs.StringVar(&dir, "dir", ".", "directory of the CA; the certificate is written there, too")
	ttl.RegisterTTL(create, "how long it is valid, such as 30d (default: 1 year)")
	fs.BoolVar(&force, "force", false, "replace files that are there")
	cmd.AddCommand(create)
	return cmd
}

// GossipKey returns the command gossip key.
func GossipKey(t *term.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "key", Short: "the key that encrypts gossip",
	}
	var force bool
	create := &cobra.Command{
		Use: "create [FILE]", Example: "outspan gossip key create gossip.key",
		Short: "make a key; every server and agent needs the same", Args: term.Between(0, 1),
		Long: "Writes a new key into FILE (0600). Without FILE the key goes to standard output. A cluster with " +
			"tls { managed = true } makes its gossip keys itself.",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return showKey(t, transport.NewGossipKey().Encode())
			}
			if _, err := transport.CreateGossipKey(args[0], force); err != nil {
				return err
			}
			s, err := term.ResultOf(writtenFiles{Key: args[0]}, args, func(p *term.Page) {
				p.Line("wrote %s (every server and agent needs the same)", args[0])
			})
			if err != nil {
				return err
			}
			return t.Show(s)
		},
	}
	create.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	cmd.AddCommand(create)
	return cmd
}

func showKey(t *term.Console, key string) error {
	s, err := term.ResultOf(map[string]string{"key": key}, []string{key}, func(p *term.Page) {
		p.Line("%s", strings.TrimSpace(key))
	})
	if err != nil {
		return err
	}
	return t.Show(s)
}
