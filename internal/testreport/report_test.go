package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun runs the real go test on small modules. It checks the output and the exit code.
func TestRun(t *testing.T) {
	tests := []struct {
		name  string
		test  string // body of x_test.go after its imports
		allow string // content of the file for -allow; "" means no such flag; "again" means the flags -again 1 instead
		code  int
		want  []string
	}{
		{"pass", `func TestA(t *testing.T) { t.Run("sub", func(t *testing.T) {}) }`, "",
			0, []string{"ok    probe", "unit: 2 passed, 0 failed, 0 skipped\n"}},
		{"fail", `func TestA(t *testing.T) { t.Log("why it failed"); t.Fail() }; func TestB(t *testing.T) {}`, "",
			1, []string{"why it failed", "FAIL  probe", "unit: 1 passed, 1 failed, 0 skipped\n"}},
		{"failures are repeated at the end",
			`func TestA(t *testing.T) { t.Run("s", func(t *testing.T) { t.Log("a seed"); println("x_test.go:1: a log"); t.Fatal("an error") }) }`, "",
			1, []string{"failed probe/TestA/s\n    x_test.go:4: a seed\n    x_test.go:4: an error\nfailed probe/TestA\nunit: "}},
		{"skip is said", `func TestA(t *testing.T) { t.Skip("needs root") }`, "",
			0, []string{"skipped probe/TestA: x_test.go:4: needs root", "unit: 0 passed, 0 failed, 1 skipped\n"}},
		{"skip refused", `func TestA(t *testing.T) { t.Skip("needs root") }`, "probe/TestOther # a reason",
			1, []string{"FAIL  probe/TestA must not skip here", "unit: 0 passed, 1 failed, 0 skipped\n"}},
		{"skip allowed", `func TestA(t *testing.T) { t.Run("s", func(t *testing.T) { t.Skip("x") }) }`,
			"probe/TestA # a reason",
			0, []string{"unit: 1 passed, 0 failed, 1 skipped\n"}},
		{"skip allowed by what it says", `func TestA(t *testing.T) { t.Skip("too long") }; func TestB(t *testing.T) { t.Skip("no root") }`,
			"probe: too long # make long runs it",
			1, []string{"FAIL  probe/TestB must not skip here", "unit: 0 passed, 1 failed, 1 skipped\n"}},
		{"panic", `func TestA(t *testing.T) { panic("boom") }`, "",
			1, []string{"boom", "unit: 0 passed, 1 failed, 0 skipped\n"}},
		{"exit outside a test", `func TestMain(m *testing.M) { os.Exit(3) }`, "",
			1, []string{"FAIL  probe", "unit: 0 passed, 1 failed, 0 skipped\n"}},
		{"again and good",
			`func TestA(t *testing.T) { if os.Mkdir("once", 0o700) == nil { t.Run("s", func(t *testing.T) { t.Fatal("first time") }) } }; func TestB(t *testing.T) {}`, "again",
			0, []string{"first time", "flaky probe/TestA: it passed", "unit: 3 passed, 0 failed, 0 skipped\n"}},
		{"only the parallel subtest that failed runs again",
			`func TestA(t *testing.T) { for _, s := range []string{"s", "t"} { t.Run(s, func(t *testing.T) { t.Parallel(); t.Log("here"); if s == "s" && os.Mkdir("once", 0o700) == nil { t.Fatal("first time") } }) } }`, "again",
			0, []string{"again probe: TestA/s\n", "flaky probe/TestA/s: it passed", "unit: 3 passed, 0 failed, 0 skipped\n"}},
		{"a test that says why it failed runs again as a whole",
			`func TestA(t *testing.T) { t.Run("s", func(t *testing.T) { t.Parallel(); t.Cleanup(func() {}); if os.Mkdir("once", 0o700) == nil { t.Fatal("first time") } }); if os.Mkdir("two", 0o700) == nil { t.Error("mine") } }`, "again",
			0, []string{"again probe: TestA\n", "flaky probe/TestA: it passed", "unit: 2 passed, 0 failed, 0 skipped\n"}},
		{"again and bad", `func TestA(t *testing.T) { t.Fatal("always") }; func TestB(t *testing.T) {}`, "again",
			1, []string{"again probe: TestA", "unit: 1 passed, 1 failed, 0 skipped\n"}},
		{"too many for another run",
			`func TestA(t *testing.T) { if os.Mkdir("a", 0o700) == nil { t.Fail() } }; func TestB(t *testing.T) { if os.Mkdir("b", 0o700) == nil { t.Fail() } }`, "again",
			1, []string{"unit: 0 passed, 2 failed, 0 skipped\n"}},
		{"a package that did not end does not run again",
			`func TestA(t *testing.T) { if os.Mkdir("once", 0o700) == nil { panic("boom") } }`, "again",
			1, []string{"boom", "unit: 0 passed, 1 failed, 0 skipped\n"}},
		{"a package that crashed outside Go runs again as a whole",
			`func TestA(t *testing.T) {}; func TestB(t *testing.T) { if os.Mkdir("once", 0o700) == nil { println("SIGSEGV: segmentation violation\nPC=0x437870 m=7 sigcode=1 addr=0x1"); os.Exit(2) } }; func TestC(t *testing.T) { t.Log("the third") }`, "again",
			0, []string{"again probe: ", "flaky probe: it passed", "unit: 3 passed, 0 failed, 0 skipped\n"}},
		{"a package that crashed twice",
			`func TestA(t *testing.T) { println("SIGSEGV: segmentation violation\nPC=0x437870 m=7 sigcode=1 addr=0x1"); os.Exit(2) }`, "again",
			1, []string{"again probe: ", "unit: 0 passed, 1 failed, 0 skipped\n"}},
		{"does not build", `func TestA(t *testing.T) { undefinedName() }`, "",
			1, []string{"undefinedName", "unit: 0 passed, 1 failed, 0 skipped\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "go.mod"), "module probe\n\ngo 1.26\n")
			write(t, filepath.Join(dir, "x_test.go"),
				"package x\n\nimport (\"testing\"; \"os\"); var _ = os.Exit\n"+tt.test+"\n")
			args := []string{"-label", "unit"}
			switch tt.allow {
			case "":
			case "again":
				args = append(args, "-again", "1")
			default:
				list := filepath.Join(dir, "allowed")
				write(t, list, "# comment\n\n"+tt.allow+"\n")
				args = append(args, "-allow", list)
			}
			t.Chdir(dir)
			var out, errs bytes.Buffer
			code := run(append(args, "--", "./..."), &out, &errs)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for _, w := range tt.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("output has no %q", w)
				}
			}
			if t.Failed() {
				t.Logf("stdout:\n%s\nstderr:\n%s", &out, &errs)
			}
		})
	}
}

func TestRunWithoutPackagesFails(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module probe\n\ngo 1.26\n")
	t.Chdir(dir)
	var out, errs bytes.Buffer
	if code := run([]string{"--", "./nowhere"}, &out, &errs); code != 1 {
		t.Errorf("exit code %d, want 1\n%s%s", code, &out, &errs)
	}
}

func TestAllowedSkipNeedsReason(t *testing.T) {
	list := filepath.Join(t.TempDir(), "allowed")
	write(t, list, "# fine\nprobe/TestA\n")
	_, err := readAllowed(list)
	if err == nil || !strings.Contains(err.Error(), ":2: probe/TestA has no reason") {
		t.Errorf("got %v, want an error that names the line", err)
	}
}

func TestLongOutputKeepsItsEnd(t *testing.T) {
	r := newReport(&bytes.Buffer{})
	id := testID{"p", "TestA"}
	for range 40 {
		r.keep(id, strings.Repeat("x", maxKept/16)+"\n")
	}
	r.keep(id, "the end\n")
	got := r.output(id)
	if len(got) > 2*maxKept || !strings.HasSuffix(got, "the end\n") {
		t.Errorf("kept %d bytes, ending in %q", len(got), got[len(got)-10:])
	}
}

func TestOwnLinesOfMany(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "    x_test.go:%d: said\n        and more\n2026-01-01 [INFO] a log\n", i)
	}
	got := ownLines(text.String())
	if len(got) != firstLines+lastLines || got[0] != "x_test.go:0: said" || got[len(got)-1] != "x_test.go:99: said" {
		t.Errorf("got %d lines: %q", len(got), got)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
