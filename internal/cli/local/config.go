package local

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/transport"
)

// configPaths adds --config to a command, so that the command accepts its files as server run and agent run do. The
// command then refuses to run without a file.
func configPaths(cmd *cobra.Command) *cobra.Command {
	named := cmd.Flags().StringArray("config", nil, "file, or directory of *.hcl files, as for server run and agent run")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args = append(args, *named...); len(args) == 0 {
			return term.Usage("%s needs a file", cmd.CommandPath()).
				WithHint("name a file, or a directory such as /etc/outspan.d")
		}
		return run(cmd, args)
	}
	return cmd
}

func roleText(c *config.Config) string {
	switch {
	case c.Server != nil && c.Agent != nil:
		return "server and agent " + c.Name
	case c.Server != nil:
		return "server " + c.Name
	}
	return "agent " + c.Name
}

// ConfigShow returns the command config show.
func ConfigShow(t *term.Console) *cobra.Command {
	return configPaths(&cobra.Command{
		Use: "show FILE|DIR...", Short: "show what the files come to, with every default", Args: term.AtLeast(0),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := config.Load(args...)
			if err != nil {
				return err
			}
			v := configView(c)
			s, err := term.ResultOf(v, []string{c.Name}, nil)
			if err != nil {
				return err
			}
			s.Text = func(p *term.Page) {
				var b bytes.Buffer
				if err := term.PrintYAML(&b, s.JSON); err == nil {
					p.Line("%s", bytes.TrimRight(b.Bytes(), "\n"))
				}
			}
			return t.Show(s)
		},
	})
}

// A certificate that expires in less than soonExpired causes a warning.
const soonExpired = 14 * 24 * time.Hour

// ConfigValidate returns the command config validate.
func ConfigValidate(t *term.Console) *cobra.Command {
	var elsewhere bool
	cmd := &cobra.Command{
		Use: "validate FILE|DIR...", Short: "check the files of a server or agent", Args: term.AtLeast(0),
		Long: `Checks the files, and what they name on this machine: that the certificate and its key fit each other, the CA, the role and the name, that they
have not expired, and that the gossip key can be read. Warns of private keys that everybody can read, and of a certificate that ends soon. On a machine that outspan up or outspan join has set up, a certificate that has ended is a warning too.`,
		Example: "outspan config validate /etc/outspan.d\noutspan config validate server.hcl --elsewhere",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := config.Load(args...)
			if err != nil {
				return err
			}
			warnings := []string{}
			if !elsewhere {
				if warnings, err = namedFiles(c, t.Now()); err != nil {
					return err
				}
			}
			shown := map[string]any{"valid": true, "name": c.Name, "server": c.Server != nil,
				"agent": c.Agent != nil, "warnings": warnings}
			s, err := term.ResultOf(shown, []string{c.Name}, func(p *term.Page) { p.Line("valid: %s", roleText(c)) })
			if err != nil {
				return err
			}
			for _, warning := range warnings {
				t.Note("warning: %s", warning)
			}
			return t.Show(s)
		},
	}
	cmd.Flags().
		BoolVar(&elsewhere, "elsewhere", false,
			"the files are for another machine: don't look at the certificates and keys that they name")
	return configPaths(cmd)
}

// namedFiles checks the files that a configuration names, and returns warnings about them. The error says why a process
// with these files would not start.
func namedFiles(c *config.Config, now time.Time) ([]string, error) {
	found, err := daemon.CheckFiles(c)
	if err != nil {
		return nil, err
	}
	warnings := []string{}
	for _, path := range found.ReadableKeys {
		warnings = append(warnings,
			fmt.Sprintf("%s can be read by every user of this machine; run: chmod 600 %s", path, path))
	}
	if len(found.OtherHosts) > 0 {
		warnings = append(warnings, fmt.Sprintf("ui.cert_file %s is not for %s of ui.hosts, so browsers refuse the page "+
			"there; issue it with subjectAltName for each of them, unless a proxy in front of the page shows browsers another "+
			"certificate", c.UI.CertFile, strings.Join(found.OtherHosts, ", ")))
	}
	for _, role := range slices.Sorted(maps.Keys(found.Ends)) {
		left := found.Ends[role].Sub(now)
		switch {
		case left >= soonExpired:
		case c.TLS.Managed && left < 0 && c.Server != nil:
			warnings = append(warnings, fmt.Sprintf("certificate %s expired %s ago; the server makes a new one when it starts",
				transport.ManagedDir(c.DataDir).CertFile(role), term.Span(-left)))
		case c.TLS.Managed && left < 0:
			warnings = append(warnings, fmt.Sprintf("certificate %s expired %s ago; let this machine join again with a token: "+
				"outspan join", transport.ManagedDir(c.DataDir).CertFile(role), term.Span(-left)))
		case c.TLS.Managed:
			warnings = append(warnings,
				fmt.Sprintf("certificate %s expires in %s; a running %s renews it earlier, see its log",
					transport.ManagedDir(c.DataDir).CertFile(role), term.Span(left), role))
		default:
			warnings = append(warnings,
				fmt.Sprintf("certificate %s expires in %s; issue a new one with: outspan tls cert create --%s %s",
					c.TLS.CertFile, term.Span(left), role, c.Name))
		}
	}
	return warnings, nil
}
