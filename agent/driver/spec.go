package driver

import (
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// ID names an instance on this node, and its directory. It has 1 to 96 characters: letters, digits, '.', '_' and '-'.
// It does not begin with a dot.
type ID string

// Valid reports whether id has the form that ID describes.
func (id ID) Valid() bool {
	if id == "" || len(id) > 96 || id[0] == '.' {
		return false
	}
	for _, r := range string(id) {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
		if !ok {
			return false
		}
	}
	return true
}

// String implements fmt.Stringer.
func (id ID) String() string { return string(id) }

// The smallest limits. The init step runs inside the cgroup for a moment, and does not work with less.
const (
	MinMemoryBytes = 4 << 20
	MinPids        = 16
)

// Spec says what an instance runs. Shims and agents of other releases read its stored form, so fields may be added, but
// not changed.
type Spec struct {
	ID      ID                `cbor:"1,keyasint"`
	Command string            `cbor:"2,keyasint"` // a path, or a name looked up in the instance's PATH
	Args    []string          `cbor:"3,keyasint"` // without the command itself
	Env     map[string]string `cbor:"4,keyasint"` // the instance does not get the agent's own environment
	// name or uid; "" = Config.DefaultUser, or the agent's own user if the agent isn't root
	User string `cbor:"5,keyasint"`
	// working directory, which must exist; "" = the driver makes one for the instance, and Task.Remove deletes it
	Dir    string     `cbor:"6,keyasint"`
	Limits Limits     `cbor:"7,keyasint"`
	Stop   StopPolicy `cbor:"8,keyasint"`
	Logs   LogPolicy  `cbor:"9,keyasint"`
	// LeaseUntil is the end of the instance's lease, at which the shim kills everything. Task.Renew moves the end. 0 means
	// no lease.
	LeaseUntil BootTime `cbor:"10,keyasint"`
	// directories that the instance sees at other paths; no target overlaps with another target or a source
	Binds []Bind `cbor:"11,keyasint"`
	// nil for a program that is installed on the node
	Container *Container `cbor:"12,keyasint,omitempty"`
}

// Limits says how much an instance may use. The limits of memory, CPU and processes need cgroups; see
// Driver.Capabilities.
type Limits struct {
	MemoryBytes int64             `cbor:"1,keyasint"` // hard cap, swap included; 0 = no cap; at least MinMemoryBytes
	CPUShares   int64             `cbor:"2,keyasint"` // soft weight as in cpu.shares, 2..262144; 0 = the kernel's default
	PidsMax     int64             `cbor:"3,keyasint"` // processes and threads; 0 = no limit; at least MinPids
	Rlimits     map[string]Rlimit `cbor:"4,keyasint"` // by their names in limits.conf: nofile, core, nproc, ...
}

// Rlimit is one resource limit. Unlimited is ^uint64(0).
type Rlimit struct {
	Soft uint64 `cbor:"1,keyasint"`
	Hard uint64 `cbor:"2,keyasint"`
}

// StopPolicy says how an instance is stopped, unless the arguments of Task.Stop say otherwise. It also says how
// processes that outlive the program are stopped.
type StopPolicy struct {
	Signal syscall.Signal `cbor:"1,keyasint"` // 0 = SIGTERM
	Grace  time.Duration  `cbor:"2,keyasint"` // 0 = 10 s; to kill at once, call Task.Stop with grace 0
}

// LogPolicy says where the logs are, and limits them. Each of the two streams keeps at most MaxBytes * MaxFiles bytes.
type LogPolicy struct {
	Dir      string `cbor:"1,keyasint"` // "" = in the state directory; Task.Remove deletes no other logs
	MaxBytes int64  `cbor:"2,keyasint"` // per file; 0 = 10 MiB; at least 1 KiB
	MaxFiles int    `cbor:"3,keyasint"` // per stream; 0 = 3
}

// withDefaults returns s with the defaults of Stop and Logs filled in.
func (s Spec) withDefaults() Spec {
	if s.Stop.Signal == 0 {
		s.Stop.Signal = syscall.SIGTERM
	}
	if s.Stop.Grace == 0 {
		s.Stop.Grace = 10 * time.Second
	}
	if s.Logs.MaxBytes == 0 {
		s.Logs.MaxBytes = 10 << 20
	}
	if s.Logs.MaxFiles == 0 {
		s.Logs.MaxFiles = 3
	}
	return s
}

// validate returns CodeInvalidSpec if a field can't be used. Call it after withDefaults.
func (s Spec) validate() error {
	bad := func(format string, args ...any) error { return model.Refuse(CodeInvalidSpec, format, args...) }
	switch {
	case !s.ID.Valid():
		return bad("instance id %q is not usable as a name", s.ID)
	case s.Command == "":
		return bad("instance %s has no command", s.ID)
	case s.Dir != "" && !filepath.IsAbs(s.Dir):
		return bad("working directory %q of instance %s is not absolute", s.Dir, s.ID)
	case s.Logs.Dir != "" && !filepath.IsAbs(s.Logs.Dir):
		return bad("log directory %q of instance %s is not absolute", s.Logs.Dir, s.ID)
	case s.Logs.MaxBytes < 1<<10 || s.Logs.MaxFiles < 1:
		return bad("log cap of instance %s is %d bytes x %d files; at least 1024 x 1 are needed", s.ID,
			s.Logs.MaxBytes, s.Logs.MaxFiles)
	case s.Stop.Grace < 0:
		return bad("grace of instance %s is negative", s.ID)
	case unix.SignalName(s.Stop.Signal) == "":
		return bad("stop signal %d of instance %s does not exist", int(s.Stop.Signal), s.ID)
	}
	if err := s.validateStrings(); err != nil {
		return err
	}
	check := s.validateBinds
	if s.Container != nil {
		check = s.validateContainer
	}
	if err := check(); err != nil {
		return err
	}
	return s.Limits.validate(s.ID)
}

// validateStrings refuses strings that execve would cut or misread.
func (s Spec) validateStrings() error {
	for _, a := range append([]string{s.Command, s.Dir}, s.Args...) {
		if strings.ContainsRune(a, 0) {
			return model.Refuse(CodeInvalidSpec, "command or argument %q of instance %s contains a zero byte", a, s.ID)
		}
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			// The value may be a secret, so the message contains only the name.
			return model.Refuse(CodeInvalidSpec, "environment variable %q of instance %s can't be set", k, s.ID)
		}
	}
	return nil
}

func (l Limits) validate(id ID) error {
	switch {
	case l.MemoryBytes != 0 && l.MemoryBytes < MinMemoryBytes:
		return model.Refuse(CodeInvalidSpec, "memory cap of instance %s is %d bytes; the least is %d", id,
			l.MemoryBytes, MinMemoryBytes)
	case l.CPUShares != 0 && (l.CPUShares < 2 || l.CPUShares > 262144):
		return model.Refuse(CodeInvalidSpec, "cpu shares of instance %s are %d; 2 to 262144 are possible", id, l.CPUShares)
	case l.PidsMax != 0 && l.PidsMax < MinPids:
		return model.Refuse(CodeInvalidSpec, "process limit of instance %s is %d; the least is %d", id, l.PidsMax, MinPids)
	}
	for name, r := range l.Rlimits {
		if _, ok := rlimitNumber(name); !ok {
			return model.Refuse(CodeInvalidSpec, "rlimit %q of instance %s does not exist", name, id)
		}
		if r.Soft > r.Hard {
			return model.Refuse(CodeInvalidSpec, "rlimit %q of instance %s has a soft limit above the hard one", name, id)
		}
	}
	return nil
}

// rlimitNumber maps a name of limits.conf to the kernel's number. It returns false if the name is unknown.
func rlimitNumber(name string) (int, bool) {
	switch name {
	case "as":
		return unix.RLIMIT_AS, true
	case "core":
		return unix.RLIMIT_CORE, true
	case "cpu":
		return unix.RLIMIT_CPU, true
	case "data":
		return unix.RLIMIT_DATA, true
	case "fsize":
		return unix.RLIMIT_FSIZE, true
	case "memlock":
		return unix.RLIMIT_MEMLOCK, true
	case "nofile":
		return unix.RLIMIT_NOFILE, true
	case "nproc":
		return unix.RLIMIT_NPROC, true
	case "stack":
		return unix.RLIMIT_STACK, true
	}
	return 0, false
}

// ParseSignal turns "SIGTERM", "TERM" or "term" into a signal. It returns CodeInvalidSpec if there is no signal of that
// name.
func ParseSignal(name string) (syscall.Signal, error) {
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if sig := unix.SignalNum(upper); sig != 0 {
		return sig, nil
	}
	return 0, model.Refuse(CodeInvalidSpec, "signal %q does not exist", name).
		WithHint("use a name such as SIGTERM or SIGINT")
}

// environ returns env as a sorted list of KEY=value, so that equal specs have equal launches.
func environ(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	sort.Strings(list)
	return list
}
