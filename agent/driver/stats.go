package driver

import (
	"os"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// Unknown stands for a number of Stats that the kernel does not tell, and for a limit that does not exist.
const Unknown = -1

// Stats is what an instance uses, as the kernel counts it. A number is Unknown if the kernel does not tell it.
type Stats struct {
	At     BootTime      // when the kernel was asked
	Cgroup bool          // the numbers are those of the instance's cgroup, and not sums over its processes
	Uptime time.Duration // since the program was started
	// CPU is the processor time used since the start of the run. Without a cgroup, a process that has ended counts if the
	// process that reaped it still runs.
	CPU time.Duration
	// MemoryBytes excludes page cache that the kernel can drop. Without a cgroup it is the sum of the resident sets, in
	// which memory that processes share counts several times.
	MemoryBytes int64
	MemoryPeak  int64 // the most in bytes since the start of the run, with page cache; Unknown without a cgroup
	MemoryLimit int64 // in bytes
	Processes   int   // without a container's init
	Threads     int64 // all processes and threads, which ThreadLimit limits
	ThreadLimit int64
}

// Stats asks the kernel what the instance uses now. Without cgroups, the numbers may be up to tableAge old; At says how
// old they are. Codes: CodeNotRunning (the instance has ended), CodeStateFailed (the kernel's numbers can't be read).
func (t *Task) Stats() (Stats, error) {
	if closed(t.done) {
		return Stats{}, t.errEnded()
	}
	stats, err := t.stats()
	if err != nil {
		return Stats{}, model.Refuse(CodeStateFailed, "read the use of instance %s: %v", t.ID(), err)
	}
	if main := t.Process(); stats.Processes == 0 && main.PID != 0 && !main.Alive() { // its end is not recorded yet
		return Stats{}, t.errEnded()
	}
	return stats, nil
}

func (t *Task) stats() (Stats, error) {
	s := Stats{At: BootNow(), Uptime: Unknown}
	if c := t.launch.Cgroup.open(); c != nil {
		pids, err := c.procs()
		if err != nil {
			return Stats{}, err
		}
		u, err := c.ctrl.usage()
		s.Cgroup, s.CPU, s.Processes = true, u.cpu, t.launch.withoutInit(len(pids))
		s.MemoryBytes, s.MemoryPeak, s.MemoryLimit = u.memory, u.memoryPeak, u.memoryLimit
		s.Threads, s.ThreadLimit = u.threads, u.threadLimit
		s.Uptime = t.Process().age(s.At)
		return s, ignoreGone(err)
	}
	list, at, err := t.driver.table.read()
	if err != nil {
		return Stats{}, err
	}
	s.At, s.MemoryPeak, s.MemoryLimit, s.ThreadLimit = at, Unknown, Unknown, Unknown
	for _, p := range list {
		if p.pid == t.shim.PID {
			s.CPU += time.Duration(p.childTicks) * tick // orphans that the shim has reaped
		}
	}
	for _, p := range descendants(list, t.shim.PID) {
		s.CPU += time.Duration(p.cpuTicks+p.childTicks) * tick
		s.MemoryBytes += p.rssPages * int64(os.Getpagesize())
		s.Threads += p.threads
		s.Processes++
	}
	s.Uptime = t.Process().age(at)
	return s, nil
}

// readPids reads the number of processes and threads in a cgroup, and its limit. Both are Unknown without the pids
// controller.
func (u *usage) readPids(dir string) (err error) {
	if u.threads, err = readCgroupOptional(dir, "pids.current"); err != nil {
		return err
	}
	u.threadLimit, err = readCgroupOptional(dir, "pids.max")
	return err
}

// tick is the unit of times in /proc: USER_HZ is 100 on all machines that Go supports.
const tick = time.Second / 100

// age returns how long ago the process was started, or Unknown for a zero Identity.
func (i Identity) age(now BootTime) time.Duration {
	if i.PID == 0 {
		return Unknown
	}
	return max(0, time.Duration(now)-time.Duration(i.Start)*tick)
}

// tableAge is for how long a list of all processes is used again. To read it takes milliseconds on a busy machine, and
// the numbers of all instances of a node are often read one after the other.
const tableAge = 50 * time.Millisecond

// processTable lists all processes of the machine. Safe for concurrent use.
type processTable struct {
	mu   sync.Mutex
	at   BootTime // when the list was read; 0 = never
	list []procStat
}

// read returns a list that is at most tableAge old, and when it was read. Callers must not change the list.
func (p *processTable) read() ([]procStat, BootTime, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := BootNow()
	if p.at != 0 && time.Duration(now-p.at) <= tableAge {
		return p.list, p.at, nil
	}
	list, err := processes()
	if err != nil {
		return nil, 0, err
	}
	p.list, p.at = list, now
	return list, now, nil
}
