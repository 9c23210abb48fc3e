package inside

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// KillAll kills the processes that list returns. It first sends SIGSTOP to them, so that none forks a new one
// meanwhile, and repeats that until list returns no new process, at most ten times. So a caller repeats KillAll until
// none is left.
func KillAll(list func() []int) {
	seen := make(map[int]bool)
	for range 10 {
		fresh := false
		for _, pid := range list() {
			if !seen[pid] {
				seen[pid], fresh = true, true
				_ = syscall.Kill(pid, syscall.SIGSTOP) // an error means that it has ended
			}
		}
		if !fresh {
			break
		}
	}
	for pid := range seen {
		_ = syscall.Kill(pid, syscall.SIGKILL) // as above
	}
}

// descendants lists the living descendants of this process. The parameter is /proc. It is opened before the program
// runs, because the container may lose the mount while it runs.
func descendants(proc *os.Root) (below []int) {
	dir, err := proc.Open(".")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	parents := make(map[int]int)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if parent, alive := parentOf(proc, pid); alive {
				parents[pid] = parent
			}
		}
	}
	for pid := range parents {
		at := parents[pid]
		for range parents { // a pid that is used again while /proc is read could make a circle
			if at == os.Getpid() {
				below = append(below, pid)
				break
			}
			at = parents[at]
		}
	}
	return below
}

// parentOf returns the parent of a process. It returns false if the process has ended.
func parentOf(proc *os.Root, pid int) (parent int, alive bool) {
	b, err := proc.ReadFile(fmt.Sprintf("%d/stat", pid))
	if err != nil {
		return 0, false
	}
	var state byte
	b = b[bytes.LastIndexByte(b, ')')+1:] // the name of the program may have any characters
	n, _ := fmt.Sscanf(string(b), " %c %d", &state, &parent)
	return parent, n == 2 && state != 'Z' && state != 'X'
}
