package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/transport"
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
				if warnings, err = checkNamedFiles(c, a.now()); err != nil {
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

// checkNamedFiles looks at the certificate and the keys that a configuration names, as the process would at its start.
func checkNamedFiles(c *config.Config, now time.Time) ([]string, error) {
	warnings := []string{}
	for _, path := range readableKeys(c) {
		warnings = append(warnings, fmt.Sprintf("%s can be read by every user of this machine; run: chmod 600 %s", path, path))
	}
	if c.TLS.Dir != "" {
		return warnings, nil // it is made at the first start
	}
	var roles []transport.Role
	if c.Server != nil {
		roles = append(roles, transport.RoleServer)
	}
	if c.Agent != nil {
		roles = append(roles, transport.RoleAgent)
	}
	p := process{cfg: c, ends: newCertificateEnd()}
	for _, role := range roles {
		creds, err := p.credentials(role)
		if err != nil {
			return nil, err
		}
		if left := creds.NotAfter().Sub(now); left < soonExpired {
			warnings = append(warnings, fmt.Sprintf("certificate %s expires in %s; issue a new one with: outspan tls cert create --%s %s", c.TLS.CertFile, span(left), role, c.Name))
		}
	}
	_, err := p.gossipKey()
	return warnings, err
}

// readableKeys are the private keys that every user of the machine can read.
func readableKeys(c *config.Config) []string {
	keys := []string{c.TLS.KeyFile, c.Gossip.KeyFile}
	if c.TLS.Dir != "" {
		keys = []string{filepath.Join(c.TLS.Dir, "ca-key.pem"), filepath.Join(c.TLS.Dir, "gossip.key")}
	}
	return slices.DeleteFunc(keys, func(path string) bool {
		info, err := os.Stat(path)
		return path == "" || err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0
	})
}
