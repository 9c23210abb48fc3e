// Command fuzzall runs every fuzz target of the module, one after another, each for the same time:
//
//	go run ./internal/fuzzall -fuzztime 20s -minimize 5s [-run REGEXP]
//
// go test takes one target at a time. If the time ends in the middle of an input, go test sometimes fails with "context
// deadline exceeded" and writes no input. Since nothing was found, fuzzall then reports the target as passed.
//
// The exit code is 0 if every target passed. It is 1 if a target failed, if a signal stopped fuzzall, or if no target
// matches REGEXP. It is 2 if the command line is invalid or the targets can't be listed. The last line of the output
// has the numbers of targets that passed and failed.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// target is one fuzz function and the directory of its package.
type target struct{ dir, name string }

// run is main with its inputs and outputs as parameters, and returns the exit code. It blocks until all targets have
// run or a signal arrives.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("fuzzall", flag.ContinueOnError)
	flags.SetOutput(stderr)
	length := flags.Duration("fuzztime", 20*time.Second, "how long each target runs")
	minimize := flags.Duration("minimize", 5*time.Second, "how long an input is made smaller")
	only := flags.String("run", "", "only targets whose package/name matches this expression")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(stderr, "fuzzall:", err)
		return 2
	}
	targets, err := find(".", wanted)
	if err != nil {
		fmt.Fprintln(stderr, "fuzzall:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	passed, failed := 0, 0
	for _, t := range targets {
		if ctx.Err() != nil {
			failed++
			continue
		}
		began := time.Now()
		out, err := fuzz(ctx, t, *length, *minimize)
		verdict := judge(out, err)
		fmt.Fprintf(stdout, "%-6s %s %s (%s)\n", verdict, t.dir, t.name, time.Since(began).Round(time.Second))
		if verdict == found {
			failed++
			_, _ = stdout.Write(out)
			continue
		}
		passed++
	}
	fmt.Fprintf(stdout, "fuzz: %d passed, %d failed, 0 skipped\n", passed, failed)
	if failed > 0 || len(targets) == 0 {
		return 1
	}
	return 0
}

var declared = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)

// find lists the fuzz targets below root whose "directory/name" matches wanted, ordered by directory and file.
func find(root string, wanted *regexp.Regexp) ([]target, error) {
	var found []target
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir := "./" + filepath.ToSlash(filepath.Dir(path))
		for _, match := range declared.FindAllSubmatch(src, -1) {
			if t := (target{dir, string(match[1])}); wanted.MatchString(t.dir + "/" + t.name) {
				found = append(found, t)
			}
		}
		return nil
	})
	return found, err
}

// fuzz runs one target and returns its output. It stops a target that hangs.
func fuzz(ctx context.Context, t target, length, minimize time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, length+10*time.Minute) // the 10 minutes include the build
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", length.String(),
		"-fuzzminimizetime", minimize.String(), t.dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}

type verdict string

const (
	fine  verdict = "ok"
	found verdict = "FAIL"
)

// outOfTime matches the lines that go test prints if the time ends in the middle of an input.
var outOfTime = regexp.MustCompile(`(?m)^--- FAIL: Fuzz\w+ \([0-9.]+s\)\n +context deadline exceeded\n`)

// judge returns the verdict on a run. A failed run is fine too, if its only failure is that the time ended in the
// middle of an input.
func judge(out []byte, err error) verdict {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return fine
	case errors.As(err, &exit) && outOfTime.Match(out) && !bytes.Contains(out, []byte("Failing input written to")) &&
		bytes.Count(out, []byte("--- FAIL")) == 1:
		return fine
	}
	return found
}
