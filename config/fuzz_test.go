package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/model"
)

// FuzzLoad checks that Load either refuses a configuration with a code and a message, or returns one that has a name,
// an absolute data_dir, and a server or an agent.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(serverFile))
	f.Add([]byte("name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\ntls { dir = \"/t\" }\n"))
	f.Add([]byte("name = \"a\"\ndata_dir = \"/d\"\nagent { servers = [\"s:1\"] }\n" +
		"tls { dir = \"/t\" }\nlog { level = \"warn\" }\n"))
	f.Add([]byte("agent { labels = { a = \"b\" } }"))
	f.Fuzz(func(t *testing.T, src []byte) {
		file := filepath.Join(t.TempDir(), "f.hcl")
		if err := os.WriteFile(file, src, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(file)
		if err != nil {
			if known, ok := errors.AsType[*model.Error](err); !ok || known.Code == "" || known.Message == "" {
				t.Fatalf("the error has no code: %v", err)
			}
			return
		}
		if c.Name == "" || !filepath.IsAbs(c.DataDir) || c.Server == nil && c.Agent == nil {
			t.Fatalf("accepted without a name, an absolute data_dir or a role: %+v", c)
		}
	})
}
