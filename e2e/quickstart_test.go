package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// shell is a block of commands in a document.
var shell = regexp.MustCompile("(?ms)^```sh\n(.*?\n)```$")

// TestQuickStart runs all commands that README.md and docs/quickstart.md have for one machine, as one script. Every
// command must succeed.
func TestQuickStart(t *testing.T) {
	var blocks [][]string
	for _, name := range []string{"README.md", "docs/quickstart.md"} {
		found := shell.FindAllStringSubmatch(document(t, name), -1)
		if len(found) == 0 {
			t.Fatalf("%s has no commands", name)
		}
		blocks = append(blocks, found...)
	}
	script := "set -eu\nset -o pipefail\n"
	for _, block := range blocks {
		script += block[1] + "\n"
	}
	try := "/tmp/" + runName()
	t.Cleanup(func() {
		for _, pid := range belonging(try) {
			procs.Kill(pid)
		}
		if err := os.RemoveAll(try); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command("bash", "-x", "-c", script)
	cmd.Dir = repository(t)
	cmd.Env = append(os.Environ(), "TRY="+try, "NO_COLOR=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := output(cmd, 5*time.Minute)
	if err != nil {
		t.Fatalf("%v\n%s", err, lastLines(out, 80))
	}
	for _, want := range []string{"drained", "active"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not speak of %q:\n%s", want, out)
		}
	}
	if left := belonging(try); len(left) > 0 {
		t.Errorf("processes %v are left after the clean-up", left)
	}
	if _, err := os.Stat(try); !os.IsNotExist(err) {
		t.Errorf("%s is left after the clean-up: %v", try, err)
	}
}

// document returns the text of a file of the source tree.
func document(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
