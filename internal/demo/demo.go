package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// Options say how Run runs the demo.
type Options struct {
	Keep bool // after the demo, leave the cluster running until ctx is canceled
	Out  io.Writer
}

// demo is one run of the demo on a real cluster.
type demo struct {
	*procs.Sandbox
	out     io.Writer
	prober  *prober
	port    int // the port on which the service is exposed
	results []measurement
	began   time.Time
}

// measurement is a line of the summary.
type measurement struct{ what, value string }

// demoInstances is the count of the demo's group. The budget lets at most two of these instances be down.
const demoInstances = 8

// Run runs the demo: three servers, four agents and a web service, as real processes on loopback. It returns an error
// if the cluster does not do what the demo promises. Before it returns, it stops the cluster and removes everything
// that the demo created.
func Run(ctx context.Context, options Options) (err error) {
	s, err := procs.New(3, 4)
	if err != nil {
		return err
	}
	d := &demo{Sandbox: s, out: options.Out, began: time.Now()}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := d.tell(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.showLogs()
		return fmt.Errorf("the demo failed: %w", err)
	}
	d.summary()
	if options.Keep {
		d.say("The cluster stays until Ctrl-C. In another terminal:")
		d.say("  export OUTSPAN_ADDR=unix://%s", s.Socket(s.Servers[0]))
		d.say("  %s status", s.Binary)
		<-ctx.Done()
	}
	return nil
}

// tell runs the chapters of the demo in order. After runJob, the prober sends requests to the service until the last
// chapter is over.
func (d *demo) tell(ctx context.Context) error {
	if err := d.startCluster(ctx); err != nil {
		return err
	}
	if err := d.runJob(ctx); err != nil {
		return err
	}
	probing, stop := context.WithCancel(ctx)
	var probes sync.WaitGroup
	probes.Go(func() { d.prober.run(probing) })
	defer probes.Wait()
	defer stop()
	for _, chapter := range []func(context.Context) error{d.drainNode, d.loseMachine, d.loseLeader,
		d.comeBack, d.loseServers} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) title(text string) {
	d.say("\n== %s  [%s]", text, time.Since(d.began).Round(100*time.Millisecond))
}

func (d *demo) measured(what, format string, args ...any) {
	d.results = append(d.results, measurement{what, fmt.Sprintf(format, args...)})
}

// show runs a command as a user would. It prints the command and the output. It returns an error if the exit code
// differs from the parameter want.
func (d *demo) show(ctx context.Context, want int, args ...string) error {
	d.say("$ outspan %s", strings.Join(args, " "))
	out, code, err := d.Run(ctx, args...)
	for line := range strings.Lines(out) {
		d.say("  %s", strings.TrimRight(line, "\n"))
	}
	if err == nil && code != want {
		err = fmt.Errorf("outspan %s: exit code %d, want %d", strings.Join(args, " "), code, want)
	}
	return err
}

func (d *demo) summary() {
	d.say("\n== Measured")
	for _, m := range d.results {
		d.say("  %-58s %s", m.what, m.value)
	}
	d.say("  %-58s %s", "the whole demo", time.Since(d.began).Round(100*time.Millisecond))
}

// showLogs prints the last lines of every process's log, because Run then removes the log files.
func (d *demo) showLogs() {
	for _, m := range d.Members() {
		d.say("\n-- last lines of %s", m.Name)
		for line := range strings.Lines(m.LastLines(6)) {
			d.say("  %.240s", strings.TrimSuffix(line, "\n"))
		}
	}
}

// jobFile writes the job file of the demo, and returns its name.
func (d *demo) jobFile() (string, error) {
	me, err := user.Current() // the service runs as this user, as another one might not be allowed to run d.Binary
	if err != nil {
		return "", fmt.Errorf("find the own user: %w", err)
	}
	const file = "web.hcl"
	text := fmt.Sprintf(`job "web" {
  group "http" {
    count = %d
    exec {
      command = %q
      args    = ["demo-app", "--boot", "1s"]
      user    = %q
    }
    resources {
      memory = "64MiB"
    }
    port "http" {}
    service "web" {
      port   = "http"
      expose = %d
    }
    check "alive" {
      type     = "http"
      port     = "http"
      path     = "/healthz"
      interval = "200ms"
    }
    budget { min_ready = %d }
    stop { grace = "5s" }
  }
}
`, demoInstances, d.Binary, me.Username, d.port, demoInstances-2)
	return file, os.WriteFile(filepath.Join(d.Dir, file), []byte(text), 0o600)
}

// exposedPort finds a port that is free on every agent's address.
func (d *demo) exposedPort() (int, error) {
	for range 50 {
		port, _, err := procs.FreePorts(d.Agents[0].Address)
		if err != nil {
			return 0, err
		}
		if d.freeEverywhere(port) {
			return port, nil
		}
	}
	return 0, errors.New("no port is free at every agent's address")
}

func (d *demo) freeEverywhere(port int) bool {
	for _, m := range d.Agents {
		l, err := net.Listen("tcp", net.JoinHostPort(m.Address, strconv.Itoa(port)))
		if err != nil {
			return false
		}
		_ = l.Close() // the listener was opened only to try the port
	}
	return true
}

func (d *demo) service(m *procs.Member) string {
	return net.JoinHostPort(m.Address, strconv.Itoa(d.port))
}
