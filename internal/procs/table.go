package procs

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Row is a process in the kernel's process table.
type Row struct {
	PID, Parent int
	Start       string // when the process started, in ticks since boot
	Zombie      bool   // the process has exited and waits to be reaped

	cpu time.Duration
}

// String returns "PID@START", which identifies one process until the next reboot.
func (r Row) String() string { return strconv.Itoa(r.PID) + "@" + r.Start }

// Args reads the process's command line, which has a zero byte after each argument. It returns "" if the process has
// exited.
func (r Row) Args() string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.PID))
	return string(b)
}

// Table reads the whole process table. Its keys are process ids.
func Table() map[int]Row {
	entries, _ := os.ReadDir("/proc")
	all := make(map[int]Row, len(entries))
	for _, e := range entries {
		pid, _ := strconv.Atoi(e.Name())
		if row, ok := RowOf(pid); ok {
			all[pid] = row
		}
	}
	return all
}

// RowOf reads the row of one process. It returns false if there is no such process.
func RowOf(pid int) (Row, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if err != nil || len(fields) < 20 {
		return Row{}, false
	}
	parent, _ := strconv.Atoi(fields[1])
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return Row{PID: pid, Parent: parent, Start: fields[19], Zombie: fields[0] == "Z" || fields[0] == "X",
		cpu: time.Duration(user+system) * (time.Second / 100)}, true
}

// Descendants returns all processes below this one, by process id: its children, their children and so on.
func Descendants() map[int]Row {
	table, me := Table(), os.Getpid()
	these := map[int]bool{me: true}
	maps.DeleteFunc(table, func(pid int, _ Row) bool { return pid == me || !under(table, pid, these) })
	return table // under works while rows are deleted, because all rows between a descendant and this process are kept
}

// Find calls match with the Row.Args of each process. It returns the ids of the processes for which match returned
// true, and of all processes below them, except those that have exited.
func Find(match func(args string) bool) (pids []int) {
	table, found := Table(), map[int]bool{}
	for pid, row := range table {
		found[pid] = match(row.Args())
	}
	for pid, row := range table {
		if !row.Zombie && under(table, pid, found) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// under reports whether the set these contains pid or the id of a process above it.
func under(table map[int]Row, pid int, these map[int]bool) bool {
	for ; pid > 1; pid = table[pid].Parent {
		if these[pid] {
			return true
		}
	}
	return false
}

// Kill kills processes with SIGKILL. A process that has already exited is no error.
func Kill(pids ...int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// Usage is how much CPU time and memory a process uses.
type Usage struct {
	CPU    time.Duration // CPU time since its start
	Memory int64         // resident memory in bytes
	Peak   int64         // highest value of Memory so far
	// The part of Memory that consists of pages of files, such as the program or a mapped log. The kernel can reclaim it.
	Files int64
}

// UsageOf reads from the kernel how much a process uses. It fails if there is no such process.
func UsageOf(pid int) (Usage, error) {
	row, _ := RowOf(pid)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	u := Usage{CPU: row.cpu}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			u.Memory = n << 10
		case "VmHWM:":
			u.Peak = n << 10
		case "RssFile:":
			u.Files = n << 10
		}
	}
	return u, err
}
