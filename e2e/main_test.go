package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/internal/procs"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run makes this process the reaper of all processes below it, removes what earlier runs left because they were killed,
// and runs the tests. It cleans up after the tests, and also when it is interrupted.
func run(m *testing.M) int {
	if flood := os.Getenv(floodVariable); flood != "" {
		return runFlood(flood)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: become the reaper of the tests' processes:", err)
		return 1
	}
	sweepDeadRuns()
	stopped := make(chan struct{})
	go reapUntil(stopped)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupted
		cleanUp()
		os.Exit(130)
	}()
	code := m.Run()
	close(stopped)
	cleanUp()
	return code
}

// cleanUp kills every process below this one and removes everything that belongs to this run.
func cleanUp() {
	if err := relatives.End(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	sweepRun(os.Getpid())
}

// namePrefix begins the names of all directories, network namespaces and cgroups that a run makes. After the prefix
// comes the run's process id, from which a later run can see whether the earlier one still runs.
const namePrefix = "oe2e-"

var ownName = regexp.MustCompile(`^` + namePrefix + `(\d+)(-|$)`)

// runName returns a new name that begins with namePrefix and this run's process id.
func runName() string {
	return fmt.Sprintf("%s%d-%d", namePrefix, os.Getpid(), nameCount.Add(1))
}

var nameCount atomic.Int64

// program builds the binary once for all tests, or takes the binary that OUTSPAN_E2E_PROGRAM names. All users may enter
// the directory of a built binary, because an agent that runs as root runs its instances as other users.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("OUTSPAN_E2E_PROGRAM"); path != "" {
		return filepath.Abs(path)
	}
	dir := "/tmp/" + runName()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the umask may have removed permissions
		return "", err
	}
	path := filepath.Join(dir, "outspan")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/outspan/outspan/cmd/outspan")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := output(cmd, 5*time.Minute); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

func mustProgram(t testing.TB) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// repository returns the root of the source tree.
func repository(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// sweepDeadRuns removes what earlier runs left because they were killed.
func sweepDeadRuns() {
	dead := map[int]bool{}
	for _, pattern := range []string{"/tmp/" + namePrefix + "*", "/run/netns/" + namePrefix + "*",
		"/sys/fs/cgroup/" + namePrefix + "*", "/sys/fs/cgroup/*/" + namePrefix + "*"} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if parts := ownName.FindStringSubmatch(filepath.Base(path)); parts != nil {
				pid, _ := strconv.Atoi(parts[1])
				dead[pid] = pid != os.Getpid() && !isTestBinary(pid)
			}
		}
	}
	for pid, gone := range dead {
		if gone {
			sweepRun(pid)
		}
	}
}

func isTestBinary(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.Contains(filepath.Base(exe), "e2e.test")
}

// sweepRun removes the processes, mounts, namespaces, cgroups and directories of one run.
func sweepRun(run int) {
	prefix := fmt.Sprintf("%s%d-", namePrefix, run)
	for range 100 {
		left := belonging("/tmp/" + prefix)
		procs.Kill(left...)
		if len(left) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	unmount("/tmp/" + prefix)
	spaces, _ := filepath.Glob("/run/netns/" + prefix + "*")
	for _, path := range spaces {
		_, _ = output(exec.Command("ip", "netns", "del", filepath.Base(path)), 10*time.Second)
	}
	if err := procs.RemoveCgroups(prefix + "*"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	dirs, _ := filepath.Glob("/tmp/" + prefix + "*")
	for _, dir := range dirs {
		_ = os.RemoveAll(dir)
	}
}

// unmount removes all mounts whose paths begin with prefix.
func unmount(prefix string) {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], prefix) {
			_ = unix.Unmount(fields[1], unix.MNT_DETACH)
		}
	}
}

// require skips the test unless it runs as root and every tool exists. With OUTSPAN_E2E_REQUIRED=1 it fails the test
// instead.
func require(t testing.TB, tools ...string) {
	t.Helper()
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		lacking(t, strings.Join(missing, ", "))
	}
}

func lacking(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("OUTSPAN_E2E_REQUIRED") == "1" {
		t.Fatalf("this test needs %s, and OUTSPAN_E2E_REQUIRED=1 says that it must run", what)
	}
	t.Skipf("this test needs %s", what)
}
