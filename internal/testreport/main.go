// Command testreport runs go test and says what happened in a way that fits a terminal and CI: one line a
// package, the whole output of what failed, then in short what failed and every skipped test with its reason, and a
// closing line of counts.
//
//	go run ./internal/testreport -label unit -allow .ci/allowed-skips -- -count=1 ./...
//
// Plain go test hides skipped tests of a package that passed. A suite whose important half skips itself for want
// of a tool or of root is then green for nothing; here a skip is always said, and with -allow it fails the run
// unless the list names it.
//
// With -again 3, up to three tests that failed run once more, each package's by themselves. What passes then is
// listed as flaky and doesn't fail the run: such a test is to be mended, but it says little about the change at hand.
//
// The exit code is 0 when every test passed (or skipped, where that is allowed), 1 when not, and 2 when the command
// line or the list can't be read.
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
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings as parameters. It blocks until go test has ended.
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
	if tests := r.repeatable(); len(tests) > 0 && len(tests) <= *again {
		repeat(r, tests, flags.Args(), stderr)
	}
	ok := r.finish(*label, allowed)
	if !ok {
		return 1
	}
	return 0
}

// goTest runs go test -json with args and feeds r. An interrupt reaches go test too (one process group), so it is
// only kept from ending this process before the report is printed. A run in which tests failed is no error here:
// r knows of it.
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
