package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/daemon"
)

// The scripts below try every command that writes. Most give only a prefix of the name of the object. The commands in
// free are exempt, because they name a new object or no object.
func TestNamesTriesEveryWrite(t *testing.T) {
	var script []byte
	// The clusters of all but the first one make certificates.
	files := []string{"names.txt", "join.txt", "approval.txt", "certificates-people.txt", "rights.txt"}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		script = append(script, text...)
	}
	free := map[string]bool{"job run": true, "run": true, "budget set": true, "class set": true, "rebalance": true,
		"token create": true, "gossip key rotate": true, "ca rotate": true, "cert create": true, "auth token create": true,
		"role set": true}
	tried := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "outspan ")
		writes := c.Flags().Lookup("request-id") != nil || path == "node roll" || path == "server promote" ||
			path == "server remove" || path == "server transfer-leader"
		switch {
		case !writes || free[path]:
		case !strings.Contains(string(script), " outspan "+path+" "):
			t.Errorf("no script tries: outspan %s; add it to one of %v in testdata", path, files)
		default:
			tried++
		}
		for _, inner := range c.Commands() {
			walk(inner)
		}
	}
	walk(newApp(daemon.Program{Version: "dev"}).root())
	if tried < 30 {
		t.Errorf("%d commands that change something are tried: the flag --request-id marks them no longer", tried)
	}
}
