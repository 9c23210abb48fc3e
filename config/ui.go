package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// UI is the web page that a server serves to people who sign in.
type UI struct {
	Address  string   // IP:PORT to listen on; port 0 means any free one; required
	CertFile string   // PEM file with the certificate for browsers and its chain; required
	KeyFile  string   // PEM file with its key; required
	Hosts    []string // names and IP addresses at which people open the page; default those of the certificate

	CertAt, KeyAt string // where the configuration names CertFile and KeyFile, as "FILE:LINE,COLUMN"
}

func uiKeys(u *UI) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Text("address", &u.Address), hclfile.Text("cert_file", &u.CertFile), hclfile.Text("key_file", &u.KeyFile),
		hclfile.Texts("hosts", &u.Hosts),
	}
}

func (c *Config) checkUI(invalid refuse) *model.Error {
	u := c.UI
	if u == nil {
		return nil
	}
	if c.Server == nil {
		return invalid("ui", "ui is for servers, and this process is none").WithHint("remove the block")
	}
	if !c.Auth.TakesTokens() {
		return invalid("ui", "nobody could sign in to the page of ui").
			WithHint("add to every server: auth { tokens = true }, or auth { oidc { ... } }")
	}
	host, port, err := net.SplitHostPort(u.Address)
	_, noIP := netip.ParseAddr(host)
	n, noNumber := strconv.Atoi(port)
	if err != nil || noIP != nil || noNumber != nil || badPort(n) {
		return invalid("ui.address", "ui.address is %q; it must be an IP address and a port", u.Address).
			WithHint("write, for example: address = \"0.0.0.0:7643\"")
	}
	if n != 0 && n == c.Listen.Port {
		return invalid("ui.address", "ui.address has the port of the API, %d", n).
			WithHint("the page needs a port of its own, so that no browser asks for a client certificate: " +
				"address = \"0.0.0.0:7643\"")
	}
	for _, file := range []struct{ key, path, example string }{
		{"ui.cert_file", u.CertFile, "/etc/outspan.d/ui.pem"}, {"ui.key_file", u.KeyFile, "/etc/outspan.d/ui-key.pem"},
	} {
		switch {
		case file.path == "":
			return invalid("ui", "%s is missing", file.key).WithHint("the page needs a certificate that browsers trust, "+
				"such as one of your company's CA or of Let's Encrypt: %s = %q", strings.TrimPrefix(file.key, "ui."), file.example)
		case !filepath.IsAbs(file.path):
			return invalid(file.key, "%s is %q, which depends on the directory that the program is started in", file.key,
				file.path).WithHint("write the whole path")
		}
	}
	for _, host := range u.Hosts {
		if host == "" || len(host) > 253 || strings.ContainsAny(host, "/: *") && net.ParseIP(host) == nil {
			return invalid("ui.hosts", "ui.hosts has %q; it takes names and IP addresses", host).
				WithHint("write them without scheme, port and wildcard, such as \"outspan.example.org\"")
		}
	}
	return nil
}

var uiTexts = map[string]hclfile.KeyText{
	"address": {
		Means: "on servers: IP:PORT at which browsers find the [web page](page.md#on-servers), where people sign in. " +
			"Default: none", Example: `"0.0.0.0:7643"`,
	},
	"cert_file": {Means: "the certificate that browsers see, with its chain, as PEM. Without `hosts` it needs a " +
		"`subjectAltName`. SIGHUP reloads it and its key",
		Example: `"/etc/outspan.d/ui.pem"`},
	"key_file": {Means: "its private key, as PEM", Example: `"/etc/outspan.d/ui-key.pem"`},
	"hosts": {
		Means: "the names and IP addresses at which people open the page; at others it does not answer. Default: those of " +
			"the certificate. SIGHUP reloads it", Example: `["outspan.example.org"]`,
	},
}
