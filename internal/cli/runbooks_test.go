package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/daemon"
)

// invocation is a command of outspan in a document or a script.
type invocation struct {
	path  string // such as outspan node revoke
	flags []string
}

// within reports whether other is the same command and has all flags of v.
func (v invocation) within(other invocation) bool {
	return v.path == other.path &&
		!slices.ContainsFunc(v.flags, func(f string) bool { return !slices.Contains(other.flags, f) })
}

var flagName = regexp.MustCompile(`(?:^| )(--?[a-z][a-z-]*)`)

// invoked returns the command in a line, after any words such as rc 5, and before a comment.
func invoked(root *cobra.Command, line string) (invocation, bool) {
	_, line, ok := strings.Cut(" "+line, " outspan ")
	line, _, _ = strings.Cut(line, " #")
	if !ok {
		return invocation{}, false
	}
	found, _, err := root.Find(strings.Fields(line))
	if err != nil || found == root {
		return invocation{}, false
	}
	v := invocation{path: found.CommandPath()}
	for _, m := range flagName.FindAllStringSubmatch(line, -1) {
		v.flags = append(v.flags, m[1])
	}
	return v, true
}

// The scripts runbooks-managed.txt and keyring.txt run each command of the runbooks in docs/operations.md, with its
// flags.
func TestRunbooksAreRun(t *testing.T) {
	root := newApp(daemon.Program{Version: "dev"}).root()
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var run []invocation
	for line := range strings.Lines(read("testdata", "runbooks-managed.txt") + read("testdata", "keyring.txt")) {
		if v, ok := invoked(root, line); ok {
			run = append(run, v)
		}
	}
	_, section, _ := strings.Cut(read("..", "..", "docs", "operations.md"), "\n## When a key or a machine is lost\n")
	section, _, _ = strings.Cut(section, "\n## ")
	told := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "outspan ") {
			continue
		}
		want, ok := invoked(root, line)
		if !ok {
			t.Errorf("there is no such command: %s", line)
			continue
		}
		told++
		if !slices.ContainsFunc(run, want.within) {
			t.Errorf("no script runs: %s", line)
		}
	}
	if told < 15 {
		t.Errorf("the runbooks have %d commands: they are not where they were", told)
	}
}
