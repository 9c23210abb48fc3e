package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The browser gets a session of its own, which Ctrl-C does not reach, and nothing of what outspan is told by the
// environment.
func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	told := filepath.Join(dir, "told")
	script := "#!/bin/sh\n{ cut -d' ' -f6 /proc/$$/stat; echo $$; env; } >$1.new\nmv $1.new $1\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("OUTSPAN_TOKEN", "secret")
	openFile(&app{}, told)
	var lines []string
	for range 500 {
		if text, err := os.ReadFile(told); err == nil {
			lines = strings.Split(string(text), "\n")
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if len(lines) < 3 {
		t.Fatal("xdg-open was not started")
	}
	if _, err := strconv.Atoi(lines[0]); err != nil || lines[0] != lines[1] {
		t.Errorf("the process %s is of session %s", lines[1], lines[0])
	}
	if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "OUTSPAN_") }) ||
		!slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "PATH=") }) {
		t.Errorf("the environment is %q", lines[2:])
	}
}

// An address of a file is one that a browser takes, whatever the path.
func TestFileAddress(t *testing.T) {
	if got := fileAddress("/run/a b/#1%/open.html"); got != "file:///run/a%20b/%231%25/open.html" {
		t.Error(got)
	}
}
