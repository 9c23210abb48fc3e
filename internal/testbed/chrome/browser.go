// Package chrome drives a headless Chromium for tests: it opens addresses, evaluates expressions, presses keys, takes
// screenshots, and notes what goes wrong in a page. It speaks the DevTools protocol over a pipe, so that no port is
// open.
package chrome

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// Program is the path of Debian's Chromium.
const Program = "/usr/bin/chromium"

// Browser is a running Chromium. It is safe for concurrent use.
type Browser struct {
	family *procs.Family
	cmd    *exec.Cmd
	to     io.WriteCloser
	from   io.ReadCloser
	exited chan struct{}

	mu      sync.Mutex
	last    int
	waiting map[int]chan message
	pages   map[string]*Page // by session
	broken  error
}

type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts a Chromium, as a child of the family, whose profile is in the directory dir. The names *.test lead it to
// 127.0.0.1; it finds no other name. It takes further flags. The caller calls Close.
func Start(dir string, family *procs.Family, flags ...string) (*Browser, error) {
	toThem, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, fromThem, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, toThem.Close(), to.Close())
	}
	cmd := exec.Command(Program, slices.Concat(flags, []string{"--headless", "--remote-debugging-pipe",
		"--user-data-dir=" + dir,
		"--no-sandbox", // it runs as root, and shows pages of the test only
		"--disable-gpu", "--hide-scrollbars", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update",
		"--disable-sync", "--disable-extensions", "--disable-default-apps", "--disable-dev-shm-usage",
		"--host-resolver-rules=MAP *.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank"})...)
	cmd.ExtraFiles = []*os.File{toThem, fromThem}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "HOME="+dir)
	err = family.Start(cmd)
	err = errors.Join(err, toThem.Close(), fromThem.Close())
	if err != nil {
		return nil, errors.Join(err, to.Close(), from.Close())
	}
	b := &Browser{family: family, cmd: cmd, to: to, from: from, exited: make(chan struct{}),
		waiting: map[int]chan message{}, pages: map[string]*Page{}}
	go b.listen()
	return b, nil
}

// Close ends the browser and all its processes.
func (b *Browser) Close() {
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) // the group is gone if it has crashed
	_ = b.family.Wait(b.cmd)                              // it was killed
	<-b.exited
	_ = b.to.Close()
	_ = b.from.Close()
}

func (b *Browser) listen() {
	defer close(b.exited)
	in := bufio.NewReader(b.from)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			b.fail(fmt.Errorf("the browser has ended: %w", err))
			return
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			b.fail(fmt.Errorf("the browser sent %q: %w", text, err))
			return
		}
		b.mu.Lock()
		answer, page := b.waiting[m.ID], b.pages[m.Session]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		switch {
		case answer != nil:
			answer <- m
		case page != nil:
			page.note(m)
		}
	}
}

func (b *Browser) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
	for id, answer := range b.waiting {
		close(answer)
		delete(b.waiting, id)
	}
}

// call sends a command and decodes its result into the value of into, unless that is nil. It waits at most 20 s.
func (b *Browser) call(ctx context.Context, session, method string, params, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	if b.broken != nil {
		defer b.mu.Unlock()
		return b.broken
	}
	b.last++
	id := b.last
	b.waiting[id] = answer
	text, err := json.Marshal(message{ID: id, Session: session, Method: method, Params: raw})
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser has ended", method)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case into != nil:
			return json.Unmarshal(m.Result, into)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}
