package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/daemon"
)

// Every command in a document, a hint or an example exists and has the flags that the text gives it.
func TestCommandsInTexts(t *testing.T) {
	root := newApp(daemon.Program{Version: "dev"}).root()
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go") ||
			!slices.Contains([]string{".go", ".md", ".service", ".yaml", ".hcl"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, wrong := range wrongCommands(root, line, &seen) {
				t.Errorf("%s:%d: %s", strings.TrimPrefix(path, "../../"), i+1, wrong)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 100 {
		t.Errorf("only %d commands found: the texts are not where they were", seen)
	}
}

func TestWrongCommands(t *testing.T) {
	root := newApp(daemon.Program{Version: "dev"}).root()
	for line, want := range map[string]int{
		"cancel it with: outspan drain cancel %s":                            0,
		"`outspan node drain n1 --max-parallel-nodes 2 -m 'x'`":              0,
		"outspan drain n7 --dry-run":                                         0,
		"outspan keeps programs running":                                     0,
		"outspan job files are HCL":                                          1,
		"`outspan node drian n1`":                                            1,
		"outspan job run web.hcl --detch && outspan node ls --selector a=b":  1,
		"outspan tls cert create --server|--agent|--cli NAME":                0,
		"outspan tls cert make":                                              1,
		"outspan server run --config /etc/outspan.d # and --more":            0,
		"`outspan nodes ls`":                                                 1,
		"outspan node ls\\noutspan node lst":                                 1,
		"outspan events -f --since 0; outspan node status n2 --wiat=offline": 1,
	} {
		if got := wrongCommands(root, line, new(int)); len(got) != want {
			t.Errorf("%s: %v, want %d", line, got, want)
		}
	}
}

var (
	mention  = regexp.MustCompile("(`?)outspan ((?:[^`\"\\\\;&#,()>]|\\\\\")*)(`?)")
	plain    = regexp.MustCompile(`^[a-z][a-z-]+$`)
	longFlag = regexp.MustCompile(`--([a-z][a-z-]+)`)
)

// wrongCommands describes the commands and flags in a line that the program does not have. It adds the number of known
// commands in the line to seen. If the word after "outspan" is no command, it is taken for prose, unless it is in
// backquotes.
func wrongCommands(root *cobra.Command, line string, seen *int) []string {
	var wrong []string
	for _, m := range mention.FindAllStringSubmatch(line, -1) {
		words := strings.Fields(m[2])
		if len(words) == 0 {
			continue
		}
		cmd := childOf(root, words[0])
		if cmd == nil {
			if m[1] == "`" && m[3] == "`" && plain.MatchString(words[0]) && words[0] != "shim" &&
				words[0] != "shim-init" && words[0] != "shim-enter" && words[0] != "door" {
				wrong = append(wrong, fmt.Sprintf("%q is no command", words[0]))
			}
			continue
		}
		*seen++
		rest := words[1:]
		for len(rest) > 0 && len(cmd.Commands()) > 0 && plain.MatchString(rest[0]) {
			next := childOf(cmd, rest[0])
			if next == nil {
				wrong = append(wrong, fmt.Sprintf("%q is no command of %s", rest[0], cmd.CommandPath()))
				break
			}
			cmd, rest = next, rest[1:]
		}
		cmd.InheritedFlags() // InheritedFlags adds the flags of the command's parents
		for _, f := range longFlag.FindAllStringSubmatch(m[2], -1) {
			if f[1] != "help" && cmd.Flags().Lookup(f[1]) == nil && cmd.InheritedFlags().Lookup(f[1]) == nil &&
				cmd.PersistentFlags().Lookup(f[1]) == nil {
				wrong = append(wrong, fmt.Sprintf("%s has no flag --%s", cmd.CommandPath(), f[1]))
			}
		}
	}
	return wrong
}

func childOf(cmd *cobra.Command, name string) *cobra.Command {
	for _, child := range cmd.Commands() {
		if child.Name() == name {
			return child
		}
	}
	return nil
}
