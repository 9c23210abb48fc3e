package cli

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/daemon"
)

// soonExpired is how long before its end a certificate is warned of.
const soonExpired = 14 * 24 * time.Hour

func configValidate(a *app) *cobra.Command {
	var elsewhere bool
	cmd := &cobra.Command{
		Use: "validate FILE|DIR...", Short: "check the files of a server or agent", Args: atLeast(0),
		Long: `Checks the files, and what they name on this machine: that the certificate and its key fit each other, the CA, the role and the name, that they
have not expired, and that the gossip key can be read. Warns of private keys that everybody can read, and of a certificate that ends soon.`,
		Example: "outspan config validate /etc/outspan.d\noutspan config validate server.hcl --elsewhere",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := config.Load(args...)
			if err != nil {
				return err
			}
			warnings := []string{}
			if !elsewhere {
				if warnings, err = namedFiles(c, a.now()); err != nil {
					return err
				}
			}
			shown := map[string]any{"valid": true, "name": c.Name, "server": c.Server != nil, "agent": c.Agent != nil, "warnings": warnings}
			s, err := shownValue(shown, []string{c.Name}, func(p *page) { p.line("valid: %s", roleText(c)) })
			if err != nil {
				return err
			}
			for _, warning := range warnings {
				a.note("warning: %s", warning)
			}
			return a.show(s)
		},
	}
	cmd.Flags().BoolVar(&elsewhere, "elsewhere", false, "the files are for another machine: don't look at the certificates and keys that they name")
	return configPaths(cmd)
}

// namedFiles warns of what is not right with the files that a configuration names.
func namedFiles(c *config.Config, now time.Time) ([]string, error) {
	found, err := daemon.CheckFiles(c)
	if err != nil {
		return nil, err
	}
	warnings := []string{}
	for _, path := range found.ReadableKeys {
		warnings = append(warnings, fmt.Sprintf("%s can be read by every user of this machine; run: chmod 600 %s", path, path))
	}
	for _, role := range slices.Sorted(maps.Keys(found.Ends)) {
		if left := found.Ends[role].Sub(now); left < soonExpired {
			warnings = append(warnings, fmt.Sprintf("certificate %s expires in %s; issue a new one with: outspan tls cert create --%s %s",
				c.TLS.CertFile, span(left), role, c.Name))
		}
	}
	return warnings, nil
}
