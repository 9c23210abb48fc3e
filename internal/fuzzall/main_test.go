package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ended returns the error of a process that exited with code 1.
func ended(t *testing.T) error {
	t.Helper()
	err := exec.Command("sh", "-c", "exit 1").Run()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Fatal(err)
	}
	return err
}

func TestJudge(t *testing.T) {
	failed := ended(t)
	const progress = "fuzz: elapsed: 20s, execs: 1 (1/sec), new interesting: 0 (total: 3)\n"
	for _, tt := range []struct {
		name, out string
		err       error
		want      verdict
	}{
		{"nothing found", progress + "PASS\n", nil, fine},
		{"the time was over in an input",
			progress + "--- FAIL: FuzzX (20.10s)\n    context deadline exceeded\nFAIL\nexit status 1\n", failed, fine},
		{"a finding",
			progress +
				"--- FAIL: FuzzX (3.10s)\n    --- FAIL: FuzzX (0.00s)\n" +
				"        x_test.go:3: no\n    \n    Failing input written to testdata/fuzz/FuzzX/1\n", failed, found},
		{"a finding that says the same",
			"--- FAIL: FuzzX (3.10s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:3: context deadline exceeded\n",
			failed, found},
		{"a seed that fails", "--- FAIL: FuzzX (0.00s)\n    --- FAIL: FuzzX/seed#1 (0.00s)\n", failed, found},
		{"it does not build", "x_test.go:3:1: syntax error\nFAIL\n", failed, found},
		{"it could not be started", "", errors.New("no go"), found},
	} {
		if got := judge([]byte(tt.out), tt.err); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/a_test.go": "package a\nfunc FuzzOne(f *testing.F) {}\nfunc FuzzTwo(f *testing.F) {}\n",
		"a/a.go":      "package a\nfunc FuzzNot(f *testing.F) {}\n",
		"b/b_test.go": "package b\n// func FuzzNot(f *testing.F)\nfunc Fuzzy(x int) {}\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for expression, want := range map[string]string{"": "[{./a FuzzOne} {./a FuzzTwo}]", "Two": "[{./a FuzzTwo}]",
		"a/FuzzOne$": "[{./a FuzzOne}]"} {
		got, err := find(".", regexp.MustCompile(expression))
		if err != nil || strings.TrimSpace(formatTargets(got)) != want {
			t.Errorf("%q finds %v, %v; want %s", expression, got, err, want)
		}
	}
}

func formatTargets(list []target) string {
	var b strings.Builder
	b.WriteString("[")
	for i, t := range list {
		if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString("{" + t.dir + " " + t.name + "}")
	}
	return b.String() + "]"
}

// A wrong command line gives exit code 2, and a run without targets exit code 1.
func TestRunRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	for args, want := range map[string]int{"-x": 2, "-run=(": 2, "-run=none": 1} {
		if got := run([]string{args}, &out, &out); got != want {
			t.Errorf("%s: exit code %d, want %d", args, got, want)
		}
	}
}
