// Command testreport runs go test and prints a report for a terminal and for CI: one line per package that has tests,
// and the output of failed tests. At the end it lists the failures again with a few lines of their output, lists every
// skipped test with its reason, and prints how many tests passed, failed and were skipped.
//
//	go run ./internal/testreport -label unit -allow .ci/allowed-skips -- -count=1 ./...
//
// Plain go test hides skipped tests if their package passed. A suite can then be green although half of it was skipped,
// because a tool or root was missing. testreport always lists skips. With -allow, a skip fails the run unless the list
// names the test.
//
// With -again 3, failed tests run once more, one package at a time, if there are at most three, not counting subtests.
// If only parallel subtests of a test failed, they alone run again. If all failed tests of a package pass this time,
// they are listed as flaky and don't fail the run. They need fixing, but the change under test is probably not the
// reason. A package whose test binary died of a signal outside Go code runs again as a whole.
//
// The exit code is 2 if the command line or the list of allowed skips can't be read. It is 0 if every test passed, was
// flaky or was allowed to skip, and 1 otherwise.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its inputs and outputs as parameters. It blocks until go test has exited, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("testreport", flag.ContinueOnError)
	flags.SetOutput(stderr)
	label := flags.String("label", "tests", "word in front of the closing line")
	allow := flags.String("allow", "", "file of tests that may skip; any other skip fails the run (default: all may)")
	again := flags.Int("again", 0, "how many failed tests may run a second time (default: none)")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	allowed, err := readAllowed(*allow)
	if err != nil {
		fmt.Fprintln(stderr, "testreport:", err)
		return 2
	}
	r := newReport(stdout)
	if err := goTest(r, flags.Args(), stderr); err != nil {
		r.broken(err)
	}
	if tests := r.repeatable(); len(tests) > 0 && topLevel(tests) <= *again {
		repeat(r, tests, flags.Args(), stderr)
	}
	ok := r.finish(*label, allowed)
	if !ok {
		return 1
	}
	return 0
}

// topLevel returns how many top-level tests and whole packages the tests belong to.
func topLevel(tests []testID) int {
	tops := map[testID]bool{}
	for _, id := range tests {
		top, _, _ := strings.Cut(id.test, "/")
		tops[testID{id.pkg, top}] = true
	}
	return len(tops)
}

// goTest runs go test -json with args and passes the events to r. An interrupt or a SIGTERM stops go test, but not this
// process, so that the report is still printed. goTest returns no error for failed tests, because r counts them.
func goTest(r *report, args []string, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("open the output of go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	if err := r.read(out); err != nil {
		return fmt.Errorf("read the output of go test: %w", err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) && r.failed > 0 {
		return nil
	} else if err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}
