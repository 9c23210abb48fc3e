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

// Scripts run each command of the runbooks in docs/operations.md, with its flags.
func TestRunbooksAreRun(t *testing.T) {
	root := newApp(daemon.Program{Version: "dev"}).root()
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	manual := read("..", "..", "docs", "operations.md")
	for _, book := range []struct {
		heading string
		least   int // commands
		scripts []string
	}{
		{"## When a key or a machine is lost", 15, []string{"runbooks-managed.txt", "keyring.txt"}},
		{"## Replace the CA", 4, []string{"ca.txt"}},
		{"### Renew a certificate", 2, []string{"runbooks.txt"}},
		{"### Change the gossip key", 7, []string{"gossip.txt", "runbooks.txt"}},
	} {
		var run []invocation
		for _, script := range book.scripts {
			for line := range strings.Lines(read("testdata", script)) {
				if v, ok := invoked(root, line); ok {
					run = append(run, v)
				}
			}
		}
		_, section, _ := strings.Cut(manual, "\n"+book.heading+"\n")
		level, _, _ := strings.Cut(book.heading, " ")
		section, _, _ = strings.Cut(section, "\n"+level+" ")
		if told := commandsRun(t, root, section, run); told < book.least {
			t.Errorf("%s: the runbooks have %d commands: they are not where they were", book.heading, told)
		}
	}
}

// commandsRun checks that each command in a section is among those that scripts run, and returns how many it has.
func commandsRun(t *testing.T, root *cobra.Command, section string, run []invocation) (told int) {
	t.Helper()
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
	return told
}
