package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/testbed/ctrd"
)

// hub is a docker-registry of the test's own, on a loopback port. Nothing but the test uses it.
type hub struct {
	procs.Process
	ctrd.Remote
}

// The user whom a hub with a password knows. The hash is bcrypt of the password, with the lowest cost.
const (
	hubUser     = "reader"
	hubPassword = "secret"
	hubHash     = "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"
)

// newHub starts a registry whose files are below the cluster's directory, and waits until it answers.
func (c *cluster) newHub(t *testing.T, name string, password bool) *hub {
	t.Helper()
	dir, address := c.path(name), freeAddress(t)
	config := fmt.Sprintf("version: 0.1\nlog: {level: warn}\nhttp: {addr: %q}\n"+
		"storage: {filesystem: {rootdirectory: %q}, delete: {enabled: true}}\n", address, dir)
	h := &hub{Remote: ctrd.Remote{URL: "http://" + address}, Process: procs.Process{Name: name, Log: c.path(name + ".log"),
		Family: relatives, Command: []string{"docker-registry", "serve", c.path(name + ".yml")}}}
	if password {
		h.User, h.Password = hubUser, hubPassword
		config += fmt.Sprintf("auth: {htpasswd: {realm: test, path: %q}}\n", c.path(name+".users"))
		if err := os.WriteFile(c.path(name+".users"), []byte(hubUser+":"+hubHash+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(c.path(name+".yml"), []byte(config), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Kill)
	h.begin(t)
	return h
}

// begin starts the registry, also after Kill.
func (h *hub) begin(t *testing.T) {
	t.Helper()
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the registry "+h.Name, patience, func() error { return h.Ready(t.Context()) })
}

// push uploads an image as NAME:1, and returns how jobs call it.
func (h *hub) push(t *testing.T, name string, i ctrd.Image) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.Push(ctx, name, "1", i); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(h.URL, "http://") + "/" + name + ":1"
}

// writeCredentials makes the file with credentials that an agent of a containerRig reads.
func (m *member) writeCredentials(t *testing.T, h *hub, password string) {
	t.Helper()
	text := fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": %q}}}`, strings.TrimPrefix(h.URL, "http://"), h.User,
		password)
	if err := os.WriteFile(m.dockerConfig(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (m *member) dockerConfig() string { return filepath.Join(m.c.dir, m.Name+"-docker.json") }

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// slowPipe forwards connections to a registry, and what comes back only at a limited rate.
type slowPipe struct {
	address string
	to      string
	rate    atomic.Int64 // bytes a second of each connection; below 0 = nothing at all, 0 = without a limit
	held    atomic.Int64 // connections whose bytes are being held back
	passed  atomic.Int64 // bytes that came back
	all     sync.WaitGroup
	ctx     context.Context
}

// newSlowPipe makes a pipe to a registry, without a limit.
func newSlowPipe(t *testing.T, h *hub) *slowPipe {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &slowPipe{address: l.Addr().String(), to: strings.TrimPrefix(h.URL, "http://"), ctx: ctx}
	p.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); p.all.Wait() })
	return p
}

// serve forwards one connection until either side or the pipe ends.
func (p *slowPipe) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	back, err := net.Dial("tcp", p.to)
	if err != nil {
		conn.Close()
		return
	}
	context.AfterFunc(ctx, func() { conn.Close(); back.Close() })
	p.all.Go(func() {
		defer cancel()
		buffer := make([]byte, 4<<10)
		for {
			n, err := conn.Read(buffer)
			if _, failed := back.Write(buffer[:n]); err != nil || failed != nil {
				return
			}
		}
	})
	buffer := make([]byte, 4<<10)
	for {
		n, err := back.Read(buffer)
		if p.pass(ctx, conn, buffer[:n]) != nil || err != nil {
			return
		}
	}
}

func (p *slowPipe) pass(ctx context.Context, conn net.Conn, b []byte) error {
	p.held.Add(1)
	defer p.held.Add(-1)
	const tick = 20 * time.Millisecond
	for len(b) > 0 {
		n := len(b)
		if rate := p.rate.Load(); rate != 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(tick):
			}
			n = min(n, int(max(rate, 0)*int64(tick)/int64(time.Second)))
		}
		if _, err := conn.Write(b[:n]); err != nil {
			return err
		}
		p.passed.Add(int64(n))
		b = b[n:]
	}
	return nil
}
