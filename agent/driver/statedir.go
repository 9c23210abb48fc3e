package driver

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The state directory of one instance has mode 0700, and the instance's id as its name. It contains:
//
//	launch    what to run, resolved; written by the agent before the shim starts
//	lock      locked (flock) by the shim while the shim runs
//	shim      identity of the shim
//	main      identity of the program
//	exit      how the run ended; written by the shim, or by the agent if the shim can't do so
//	control   unix socket of the shim
//	shim.log  output of the shim itself (normally empty)
//	logs/     stdout.<offset> and stderr.<offset>, with their marks, unless the Spec names a log directory
//	bundle/   of a container: what the OCI runtime reads and writes
const (
	fileLaunch  = "launch"
	fileLock    = "lock"
	fileShim    = "shim"
	fileMain    = "main"
	fileExit    = "exit"
	fileControl = "control"
	fileShimLog = "shim.log"
	dirLogs     = "logs"
	dirBundle   = "bundle"

	// Directories whose names have these prefixes were not completely made or removed. Adopt deletes them.
	prefixNew     = ".new-"
	prefixRemoved = ".removed-"
)

type stateDir string

// removedName returns the path to which the directory is renamed before it is deleted.
func (d stateDir) removedName() string {
	return filepath.Join(filepath.Dir(string(d)), prefixRemoved+filepath.Base(string(d)))
}

func (d stateDir) path(name string) string { return filepath.Join(string(d), name) }

// launch is what a shim needs to know. The agent has resolved everything that depends on the node: user, paths and
// cgroups.
type launch struct {
	Run     int       `cbor:"1,keyasint"` // starts at 1; each restart adds 1; also in the files shim, main and exit
	Token   string    `cbor:"2,keyasint"` // random; is in the environment of every process of this run
	Boot    string    `cbor:"3,keyasint"` // boot id under which the run was started; otherBoot may change it
	Spec    Spec      `cbor:"4,keyasint"` // with defaults filled in
	Account account   `cbor:"5,keyasint"`
	Dir     string    `cbor:"6,keyasint"` // working directory
	OwnDir  bool      `cbor:"7,keyasint"` // the driver made Dir, and Remove deletes it
	LogDir  string    `cbor:"8,keyasint"`
	Env     []string  `cbor:"9,keyasint"`
	Cgroup  cgroupRef `cbor:"10,keyasint"`
	// of a container only
	Runtime ociRuntime `cbor:"11,keyasint,omitempty"`
}

// marker returns the environment entry by which a process of this run can be recognised, even without any file.
func (l launch) marker() string { return envRun + "=" + l.Token }

// runIdentity is the content of the files shim and main.
type runIdentity struct {
	Run int      `cbor:"1,keyasint"`
	ID  Identity `cbor:"2,keyasint"`
	// Token and Cgroup are copies from the launch. With them the run can be killed if the launch is unreadable.
	Token  string    `cbor:"3,keyasint"`
	Cgroup cgroupRef `cbor:"4,keyasint"`
}

// exitRecord is the content of the file exit.
type exitRecord struct {
	Run     int    `cbor:"1,keyasint"`
	Reason  Reason `cbor:"2,keyasint"`
	Code    int    `cbor:"3,keyasint"`
	Signal  int    `cbor:"4,keyasint"`
	OOM     bool   `cbor:"5,keyasint"`
	Message string `cbor:"6,keyasint"`
	Started int64  `cbor:"7,keyasint"` // wall clock, ms since 1970; 0 = unknown
	Ended   int64  `cbor:"8,keyasint"` // wall clock, ms since 1970
}

func (r exitRecord) exit() Exit {
	e := Exit{Reason: r.Reason, Code: r.Code, Signal: unixSignal(r.Signal), OOMKilled: r.OOM, Message: r.Message,
		EndedAt: time.UnixMilli(r.Ended)}
	if r.Started != 0 {
		e.StartedAt = time.UnixMilli(r.Started)
	}
	return e
}

func (d stateDir) readLaunch() (launch, error) {
	var l launch
	if err := ReadRecord(d.path(fileLaunch), &l); err != nil {
		return launch{}, err
	}
	if err := l.Spec.validate(); err != nil {
		return launch{}, fmt.Errorf("%w: %w", errRecordDamaged, err)
	}
	return l, nil
}

// readIdentity returns the identity in file. It returns false if the file is missing or damaged, or belongs to another
// run.
func (d stateDir) readIdentity(file string, run int) (Identity, bool) {
	var r runIdentity
	if err := ReadRecord(d.path(file), &r); err != nil || r.Run != run {
		return Identity{}, false
	}
	return r.ID, true
}

// writeBoot writes l to the file launch, and the boot id of l to the files shim and main of the same run.
func (d stateDir) writeBoot(l launch) error {
	for _, file := range []string{fileShim, fileMain} {
		var r runIdentity
		if err := ReadRecord(d.path(file), &r); err != nil || r.Run != l.Run {
			continue // findShim asks the shim for what is missing or damaged
		}
		r.ID.Boot = l.Boot
		if err := WriteRecord(d.path(file), r); err != nil {
			return err
		}
	}
	return WriteRecord(d.path(fileLaunch), l)
}

func (d stateDir) readExit(run int) (Exit, bool) {
	var r exitRecord
	if err := ReadRecord(d.path(fileExit), &r); err != nil || r.Run != run || !r.Reason.Valid() {
		return Exit{}, false
	}
	return r.exit(), true
}

// lock takes the shim's lock without waiting. It returns errLocked if another process has the lock.
func (d stateDir) lock() (*os.File, error) { return lockFile(d.path(fileLock)) }

var errLocked = errors.New("locked by another process")

func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", filepath.Base(path), err)
	}
	return f, nil
}

// tokenLength is the length of a run's token, in hexadecimal digits.
const tokenLength = 32

func randomToken() string {
	b := make([]byte, tokenLength/2)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b)
}
