package e2e

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// clockProgram builds the program once for all tests, with a wall clock that setClock moves. It is the usual program,
// except that time.Now of the standard library adds the content of a file (testdata/clock). So every package compiles
// again, which takes about two minutes of CPU time if the build cache lacks it.
var clockProgram = sync.OnceValues(func() (string, error) {
	dir := "/tmp/" + runName()
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { // instances run as other users
		return "", err
	}
	overlay, err := clockOverlay(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "outspan")
	cmd := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", path,
		"github.com/outspan/outspan/cmd/outspan")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := output(cmd, 8*time.Minute); err != nil {
		return "", fmt.Errorf("build the program with a clock that moves: %w\n%s", err, out)
	}
	return path, nil
})

// clockOverlay writes files that go build takes instead of those of the standard library, and returns their list.
func clockOverlay(dir string) (string, error) {
	out, err := output(exec.Command("go", "env", "GOROOT"), time.Minute)
	if err != nil {
		return "", fmt.Errorf("go env: %w\n%s", err, out)
	}
	theirs := filepath.Join(strings.TrimSpace(out), "src", "time")
	text, err := os.ReadFile(filepath.Join(theirs, "time.go"))
	if err != nil {
		return "", err
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	patched := strings.Replace(string(text), now, strings.Replace(now, "runtimeNow", "wallNow", 1), 1)
	if patched == string(text) {
		return "", errors.New("time.Now of this toolchain does not begin as expected: compare it with clockOverlay")
	}
	added, err := filepath.Abs("testdata/clock/wallclock.go.txt")
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "time.go")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(theirs, "time.go"): changed, filepath.Join(theirs, "wallclock.go"): added}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(changed, []byte(patched), 0o600), os.WriteFile(overlay, list, 0o600))
}

// newClocks is newMembers for a managed cluster in which each member has a wall clock of its own. At first, all are
// right.
func newClocks(t testing.TB, o options) *cluster {
	t.Helper()
	bin, err := clockProgram()
	if err != nil {
		t.Fatal(err)
	}
	o.managed, o.bin = true, bin
	c := newMembers(t, o)
	for _, m := range c.members() {
		m.setClock(t, 0)
	}
	return c
}

// clockVariable names the file with the clock of a process.
const clockVariable = "OUTSPAN_E2E_CLOCK"

// clock returns the path of the file that says how many seconds the member's wall clock is ahead.
func (m *member) clock() string { return m.c.path(m.Name + ".clock") }

// setClock makes the member's wall clock ahead of the machine's, or behind if ahead is negative. It works at once, also
// in a process that runs.
func (m *member) setClock(t testing.TB, ahead time.Duration) {
	t.Helper()
	f, err := os.OpenFile(m.clock(), os.O_CREATE|os.O_WRONLY, 0o600) // never truncated: processes have mapped it
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0); err != nil {
		t.Fatal(err)
	}
}

// setClocks sets the clocks of several members to the same time.
func setClocks(t testing.TB, members []*member, ahead time.Duration) {
	t.Helper()
	for _, m := range members {
		m.setClock(t, ahead)
	}
}
