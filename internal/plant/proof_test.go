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

// binaries are the test binaries of the packages in proofs, built with the tag planted.
type binaries struct {
	dir  string
	root string
	made map[string]string // file of the binary, by package
}

// build builds one test binary for each package that the proofs name.
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

// harness runs a proof's scenario with one seed. It plants bug, or no bug if bug is "". It returns the output and
// whether the scenario passed.
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

// For each bug in proofs, the scenario fails if the bug is planted, and the failure names the invariant. Without a bug,
// the same binary passes the same scenario with the same seed.
func TestEveryPlantedBugIsCaught(t *testing.T) {
	var chosen []proof
	for _, p := range proofs() {
		if only := os.Getenv("PLANT"); only == "" || only == string(p.bug) {
			chosen = append(chosen, p)
		}
	}
	b := build(t, chosen)
	sound := map[string]bool{} // scenarios, with their seed, that have already run without a bug
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

// catch runs a proof's scenario with each seed until one run catches the bug. It returns the seed of this run, and the
// line of the output that names the invariant. Scenarios with real goroutines may need several runs, because a seed
// does not decide how goroutines are scheduled.
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

func tail(text string) string {
	const enough = 8000
	return text[max(0, len(text)-enough):]
}
