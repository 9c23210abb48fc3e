// Package inside is the part of the driver that runs inside a container: process 1, and the parent of a command that
// runs beside the program. It imports little, because its memory counts for the container.
package inside

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/sys/unix"
)

// Subcommand is the hidden subcommand of the binary that calls Main.
const Subcommand = "container-init"

// FD is the descriptor of the link, a socket of kind SOCK_SEQPACKET. The other end belongs to the shim or, for a
// command beside the program, to the agent. When that end is closed, the link's owner is gone and everything ends.
const FD = 3

// Limit is the size of the largest Plan, in bytes.
const Limit = 128 << 10

// Plan says what to run. It is the only packet that the owner of the link sends. It is sent once the owner has recorded
// which process it talks to, so no instruction of the program runs before that.
type Plan struct {
	Argv []string `cbor:"1,keyasint"` // the program, a path or a name looked up in PATH, and its arguments
	Env  []string `cbor:"2,keyasint"` // HOME is added if it is missing
	Dir  string   `cbor:"3,keyasint"` // working directory
	// Session runs the program in a session of its own. When it ends or the link is closed, its descendants are killed.
	Session bool `cbor:"4,keyasint,omitempty"`
	// Terminal is the size of a terminal on which the program of a session runs, in place of the three descriptors that
	// this process has. The other end of the terminal comes with the packet Ready. nil means no terminal.
	Terminal *Size `cbor:"5,keyasint,omitempty"`
}

// Packets to the owner of the link begin with one of these bytes.
const (
	Ready  = 'R' // the program was executed
	Failed = 'E' // it was not; the reason follows
	Ended  = 'X' // it has ended; its wait status follows, in decimal digits
)

// Main implements the subcommand: it runs a program and passes on signals, the way the program ends, and the end of the
// link. As process 1 it also reaps orphans, and ends once no process is left. It returns the exit code.
func Main() int {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals) // all of them: process 1 would otherwise die by signals from outside that the program handles
	// The program may run as the same user. It must not trace this process or take its descriptors.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	_ = os.WriteFile("/proc/self/comm", []byte("outspan-init"), 0) // otherwise ps shows the name of the file
	unix.CloseOnExec(FD)
	plan, err := receive()
	if err != nil {
		return 125 // the owner is gone
	}
	p, err := plan.start()
	if err != nil {
		say(Failed, err.Error())
		return 125
	}
	go p.endWithLink()
	return p.run(signals)
}

func receive() (Plan, error) {
	var p Plan
	buf := make([]byte, Limit)
	n, err := read(buf)
	if err == nil && n == 0 {
		err = errors.New("the link is closed")
	}
	if err == nil {
		err = cbor.Unmarshal(buf[:n], &p)
	}
	if err == nil && len(p.Argv) == 0 {
		err = errors.New("the plan names no program")
	}
	return p, err
}

func read(buf []byte) (int, error) {
	for {
		n, err := unix.Read(FD, buf)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// say sends a packet. An error means that the owner is gone, which endWithLink handles.
func say(kind byte, text string) {
	const most = 4 << 10
	_, _ = unix.Write(FD, append([]byte{kind}, text[:min(len(text), most)]...))
}

// start executes the program and says Ready. The program gets a process group of its own, so that signals reach all of
// the group.
func (p Plan) start() (*parent, error) {
	if os.Getenv("HOME") != "" && lookup(p.Env, "HOME") == "" {
		p.Env = append(p.Env, "HOME="+os.Getenv("HOME"))
	}
	if err := os.Chdir(p.Dir); err != nil {
		return nil, fmt.Errorf("enter the working directory: %w", err)
	}
	path, err := LookPath(p.Argv[0], p.Env)
	if err != nil {
		return nil, err
	}
	unix.Umask(0o022)
	program := &parent{first: os.Getpid() == 1, session: p.Session, gone: make(chan struct{})}
	attr := &syscall.ProcAttr{Env: p.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	var rights []byte // what Ready carries besides
	if p.Session {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become a subreaper: %w", err)
		}
		if program.proc, err = os.OpenRoot("/proc"); err != nil {
			return nil, err
		}
		attr.Sys = &syscall.SysProcAttr{Setsid: true}
	}
	if p.Terminal != nil {
		master, slave, err := OpenTerminal(*p.Terminal)
		if err != nil {
			return nil, fmt.Errorf("open a terminal: %w", err)
		}
		defer func() { _, _ = unix.Close(master), unix.Close(slave) }()
		attr.Files = []uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
		attr.Sys.Setctty = true
		rights = unix.UnixRights(master)
	}
	if program.pid, err = syscall.ForkExec(path, p.Argv, attr); err != nil {
		return nil, fmt.Errorf("execute %s: %w", path, err)
	}
	if p.Session {
		leaveStreams()
	}
	_ = unix.Sendmsg(FD, []byte{Ready}, rights, nil, 0) // as in say
	return program, nil
}

// leaveStreams closes the streams that the program has too, so that they end with the program.
func leaveStreams() {
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(int(null.Fd()), fd, 0)
		}
	}
}

// parent is the parent of the program.
type parent struct {
	pid     int           // of the program
	first   bool          // whether this is process 1 of the container
	session bool          // see Plan
	proc    *os.Root      // of a session
	gone    chan struct{} // closed when the owner of the link of a session is gone
}

// endWithLink ends the container or the command when the owner of the link is gone.
func (p *parent) endWithLink() {
	buf := make([]byte, 1)
	for {
		if n, err := read(buf); n == 0 || err != nil {
			break
		}
	}
	if p.session {
		close(p.gone)
		return
	}
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	os.Exit(125) //nolint:forbidigo // main waits for the program in another goroutine
}

// killEvery is the time between two passes of a kill.
const killEvery = 20 * time.Millisecond

// run passes on signals and reaps until nothing is left. When the program of a command ends, run kills what the command
// left: all of a session, and otherwise its process group. When the program of the container ends, the shim decides
// about the rest.
func (p *parent) run(signals chan os.Signal) int {
	code, over, gone := 0, false, p.gone
	for {
		for {
			var ws syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if errors.Is(err, syscall.ECHILD) {
				return code
			}
			if pid <= 0 {
				break
			}
			if pid == p.pid {
				code, over = exitCode(ws), true
				if !p.first {
					_ = syscall.Kill(-p.pid, syscall.SIGKILL)
				}
				say(Ended, fmt.Sprint(uint32(ws)))
			}
		}
		var again <-chan time.Time
		if p.session && (over || gone == nil) {
			KillAll(func() []int { return descendants(p.proc) })
			again = time.After(killEvery)
		}
		select {
		case sig := <-signals:
			p.pass(sig, over)
		case <-gone:
			gone = nil
		case <-again:
		}
	}
}

// pass passes a signal on to the program's process group.
func (p *parent) pass(sig os.Signal, over bool) {
	switch sig {
	case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE: // Go's runtime sends SIGURG to itself
	default:
		if !over {
			_ = syscall.Kill(-p.pid, sig.(syscall.Signal))
		}
	}
}

func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func lookup(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// LookPath finds a program in the PATH of env. It finds only what this process may execute. It returns a name with a
// slash unchanged.
func LookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := lookup(env, "PATH")
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && !st.IsDir() && unix.Access(file, unix.X_OK) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("execute %s: not found in PATH %q", name, path)
}
