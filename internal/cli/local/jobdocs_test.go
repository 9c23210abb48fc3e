package local

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The reference has exactly the OUTSPAN_ variables that the program sets or reads.
func TestVariablesAreListed(t *testing.T) {
	listed := map[string]bool{}
	for _, group := range variables() {
		for _, v := range group.list {
			listed[strings.TrimSuffix(v.name, "NAME")] = true // the code has OUTSPAN_PORT_, to which it appends a name
		}
	}
	listed["OUTSPAN_TLS_SERVER_NAME"] = true
	delete(listed, "OUTSPAN_TLS_SERVER_")
	found := map[string]bool{}
	quoted := regexp.MustCompile(`"(OUTSPAN_[A-Z_]+)=?"`)
	for _, room := range []string{"agent", "cluster", "cmd", "config", "fsm", "internal/cli", "internal/daemon",
		"reconcile", "transport"} {
		err := filepath.WalkDir("../../../"+room, func(path string, d fs.DirEntry, err error) error {
			skip := err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go")
			if skip || filepath.Base(path) == "jobdocs.go" || filepath.Base(path) == "profile.go" {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
				if m[1] != "OUTSPAN_PORT_HTTP" { // only the demo's job uses this variable
					found[m[1]] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range found {
		if !listed[name] {
			t.Errorf("%s is in the code and not in variables()", name)
		}
	}
	for name := range listed {
		if !found[name] {
			t.Errorf("%s is in variables() and not in the code", name)
		}
	}
}
