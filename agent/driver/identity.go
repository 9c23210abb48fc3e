package driver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Identity names one process and never another one. A pid alone can be reused. A pid with a start time is unique within
// one boot, and the boot id distinguishes boots.
type Identity struct {
	PID   int    `cbor:"1,keyasint"`
	Start uint64 `cbor:"2,keyasint"` // field 22 of /proc/PID/stat: clock ticks since boot
	Boot  string `cbor:"3,keyasint"` // /proc/sys/kernel/random/boot_id
}

// Alive reports whether the process still runs. It returns false for a zombie.
func (i Identity) Alive() bool {
	st, ok := i.stat()
	return ok && !st.dead()
}

// stat reads /proc/PID/stat of the process, which may be a zombie. It returns false if the process is gone, even if
// another process has its pid now.
func (i Identity) stat() (procStat, bool) {
	if i.PID <= 0 {
		return procStat{}, false
	}
	boot, err := bootID()
	if err != nil || boot != i.Boot {
		return procStat{}, false
	}
	st, err := readStat(i.PID)
	if err != nil || st.start != i.Start {
		return procStat{}, false
	}
	return st, true
}

// signal sends sig to this process, and returns an error if the process has ended. It opens a pidfd before it checks
// the identity, so that the signal can't reach a later process with the same pid. Where pidfds don't work, the signal
// can reach a later process if the pid is reused right after the check.
func (i Identity) signal(sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(i.PID, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
	} else if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("open process %d: %w", i.PID, err)
	}
	if !i.Alive() {
		return os.ErrProcessDone
	}
	if err != nil { // a kernel before 5.3, or a sandbox that forbids the call
		return syscall.Kill(i.PID, sig)
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// Kill kills this process and waits up to 5 s until it has ended. If the process is a child, Kill also reaps it, which
// may take up to 5 s more. It returns an error if the signal could not be sent, for example because the process had
// ended before. It returns nil if the process outlives the wait.
func (i Identity) Kill() error {
	err := i.signal(syscall.SIGKILL)
	awaitEnd(i, 5*time.Second)
	return err
}

// identify returns the identity of the process that has pid now.
func identify(pid int) (Identity, error) {
	boot, err := bootID()
	if err != nil {
		return Identity{}, err
	}
	st, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: st.start, Boot: boot}, nil
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// procStat has the fields of /proc/PID/stat that the driver needs.
type procStat struct {
	pid, ppid, pgrp, session int
	state                    byte
	start                    uint64 // clock ticks since boot
	cpuTicks                 uint64 // user and system time, in clock ticks
	childTicks               uint64 // the same of children that the process has reaped
	rssPages                 int64
	threads                  int64
}

func (p procStat) dead() bool { return p.state == 'Z' || p.state == 'X' || p.state == 'x' }

func (p procStat) identity(boot string) Identity {
	return Identity{PID: p.pid, Start: p.start, Boot: boot}
}

func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	return parseStat(b)
}

// parseStat parses the content of /proc/PID/stat. The command name is between the first '(' and the last ')', because
// the name itself may contain spaces and parentheses.
func parseStat(b []byte) (procStat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return procStat{}, fmt.Errorf("process stat without a command name: %q", b)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:open])))
	f := strings.Fields(string(b[end+1:]))
	if err != nil || len(f) < 22 {
		return procStat{}, fmt.Errorf("process stat with %d fields: %q", len(f), b)
	}
	num := func(field int) uint64 { // proc(5) numbers the fields; state is field 3
		n, e := strconv.ParseInt(f[field-3], 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("field %d of process stat: %w", field, e)
		}
		return uint64(n)
	}
	p := procStat{
		pid: pid, state: f[0][0], ppid: int(num(4)), pgrp: int(num(5)), session: int(num(6)),
		cpuTicks: num(14) + num(15), childTicks: num(16) + num(17), start: num(22), rssPages: int64(num(24)),
		threads: int64(num(20)),
	}
	return p, err
}

// processes lists all processes in /proc. It skips processes that end while it reads.
func processes() ([]procStat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []procStat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err == nil {
			list = append(list, st)
		}
	}
	return list, nil
}

// descendants returns the processes in list that descend from the process root, zombies included, but not root itself.
// Children of root precede more distant descendants.
func descendants(list []procStat, root int) []procStat {
	children := make(map[int][]procStat, len(list))
	for _, p := range list {
		children[p.ppid] = append(children[p.ppid], p)
	}
	var found []procStat
	queue := []int{root}
	for len(queue) > 0 {
		for _, p := range children[queue[0]] {
			found = append(found, p)
			queue = append(queue, p.pid)
		}
		queue = queue[1:]
	}
	return found
}

// hasEnv reports whether the process was started with this environment entry, of the form "KEY=value". It returns false
// if the environment can't be read, for example because the process belongs to another user.
func hasEnv(pid int, entry string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for _, e := range bytes.Split(b, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}
