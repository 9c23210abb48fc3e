//go:build plants

package plant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runLimit bounds one run of a scenario.
const runLimit = 90 * time.Second

// binaries are the harnesses as built with the tag, one for each room that a proof names.
type binaries struct {
	dir  string
	root string
	made map[string]string // room to file
}

// build compiles what some proofs need, once.
func build(t *testing.T, proofs []proof) *binaries {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b := &binaries{dir: t.TempDir(), root: root, made: map[string]string{}}
	for _, p := range proofs {
		if b.made[p.room] != "" {
			continue
		}
		out := filepath.Join(b.dir, strings.ReplaceAll(p.room, "/", "-")+".test")
		b.run(t, "go", "test", "-tags", "planted", "-c", "-o", out, "./"+p.room)
		b.made[p.room] = out
	}
	return b
}

func (b *binaries) run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// harness runs a proof's scenario with one seed and a bug, or none, and returns what it wrote and whether it passed.
func (b *binaries) harness(t *testing.T, p *proof, seed string, bug Bug) (output string, passed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.made[p.room], "-test.v", "-test.run", "^"+p.test+"$",
		"-test.timeout", runLimit.String())
	cmd.Dir = filepath.Join(b.root, p.room)
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "OUTSPAN_PLANT="+string(bug), "OUTSPAN_SEED="+seed)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s: %v", p.test, err)
	}
	if strings.Contains(string(out), "no tests to run") || strings.Contains(string(out), "--- SKIP") {
		t.Fatalf("%s of %s did not run:\n%s", p.test, p.room, out)
	}
	return string(out), err == nil
}

// A harness must be able to fail: each bug that can be planted is caught by the scenario that its row names, in a
// failure that tells the invariant. The same binary without a bug passes the same scenario.
func TestEveryPlantedBugIsCaught(t *testing.T) {
	var chosen []proof
	for _, p := range proofs() {
		if only := os.Getenv("PLANT"); only == "" || only == string(p.bug) {
			chosen = append(chosen, p)
		}
	}
	b := build(t, chosen)
	sound := map[string]bool{} // scenarios with a seed that have passed without a bug
	for i := range chosen {
		p := &chosen[i]
		t.Run(string(p.bug), func(t *testing.T) {
			began := time.Now()
			seed, line := b.catch(t, p)
			t.Logf("caught after %s by %s %s, seed %s:\n%s", time.Since(began).Round(time.Second/10), p.room, p.test, seed, line)
			key := fmt.Sprint(p.room, p.test, seed)
			if sound[key] {
				return
			}
			if out, passed := b.harness(t, p, seed, ""); !passed {
				t.Errorf("%s fails without a bug, seed %s:\n%s", p.test, seed, tail(out))
			}
			sound[key] = true
		})
	}
}

// catch runs a proof's seeds until one catches the bug. Goroutines are not scheduled by the seed, so a scenario of real
// parts may need more than one.
func (b *binaries) catch(t *testing.T, p *proof) (seed, line string) {
	t.Helper()
	for _, seed := range p.seeds {
		out, passed := b.harness(t, p, seed, p.bug)
		if passed {
			t.Logf("seed %s did not catch it", seed)
			continue
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, p.want) {
				return seed, strings.TrimSpace(line)
			}
		}
		t.Logf("seed %s: it failed, but nothing says %q:\n%s", seed, p.want, tail(out))
	}
	t.Fatalf("%s of %s does not catch it, with the seeds %s: the harness can't see it", p.test, p.room,
		strings.Join(p.seeds, ", "))
	return "", ""
}

// tail is the end of a long text.
func tail(text string) string {
	const enough = 8000
	return text[max(0, len(text)-enough):]
}
