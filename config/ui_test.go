package config_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/model"
)

func hint(err error) string {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Hint
	}
	return ""
}

func TestUI(t *testing.T) {
	const auth, files = "auth { tokens = true }\n", "cert_file = \"/c.pem\"\n  key_file = \"/k.pem\"\n"
	for name, one := range map[string]struct{ text, want string }{
		"good": {auth + "ui {\n  address = \"0.0.0.0:7643\"\n  " + files +
			"  hosts = [\"a.example.org\", \"10.0.0.1\"]\n}", ""},
		"no sign-in":     {"ui {\n  address = \"0.0.0.0:7643\"\n  " + files + "}", "nobody could sign in"},
		"no address":     {auth + "ui {\n  " + files + "}", "ui.address is \"\""},
		"a name":         {auth + "ui {\n  address = \"page:1\"\n  " + files + "}", "IP address and a port"},
		"port of API":    {auth + "ui {\n  address = \"0.0.0.0:7640\"\n  " + files + "}", "the port of the API"},
		"no certificate": {auth + "ui { address = \"0.0.0.0:7643\" }", "ui.cert_file is missing"},
		"relative": {auth + "ui {\n  address = \"0.0.0.0:7643\"\n  cert_file = \"c\"\n  key_file = \"/k\"\n}",
			"depends on the directory"},
		"URL as host": {auth + "ui {\n  address = \"0.0.0.0:7643\"\n  " + files + "  hosts = [\"https://a\"]\n}",
			"without scheme"},
	} {
		dir := write(t, map[string]string{"10-server.hcl": serverFile, "20-ui.hcl": one.text})
		c, err := config.Load(dir)
		if one.want == "" && (err != nil || c.UI == nil || len(c.UI.Hosts) != 2) ||
			one.want != "" && (err == nil || !strings.Contains(err.Error()+hint(err), one.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if name != "good" {
			continue
		}
		at := filepath.Join(dir, "20-ui.hcl")
		if c.UI.CertAt != at+":4,15" || c.UI.KeyAt != at+":5,14" {
			t.Errorf("the files are named at %s and %s", c.UI.CertAt, c.UI.KeyAt)
		}
	}
}
