package door

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver"
)

const (
	// forsaken is how long a door listens after the last request of an agent. After this time its list of backends may be
	// out of date.
	forsaken = time.Hour
	// unused is how long a door without services and connections waits for a request before it exits.
	unused = 10 * time.Second
	// fdReady is the descriptor on which the door sends one byte to the agent that started it, when the door begins to
	// serve.
	fdReady = 3
	// fileControl is the name of the door's socket in its directory. The process that made the socket is the door of the
	// directory.
	fileControl = "control"
)

// Main runs the hidden subcommand `door DIR VERSION`. If a door runs in DIR, the new door takes over its listeners.
// Main returns the exit code when the new door has nothing left to do.
func Main(args []string) int {
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: outspan door DIR VERSION (started by the agent only)")
		return 2
	}
	driver.CloseInherited(fdReady)
	// The door catches the signals that stop an agent, so that they don't stop the door too.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGPIPE,
		unix.SIGUSR1, unix.SIGUSR2)
	_ = os.WriteFile("/proc/self/comm", []byte("outspan-door"), 0)  // otherwise ps shows "exe"
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0) // out of memory, others are killed first; needs root
	log := hclog.New(&hclog.LoggerOptions{Name: "door", Level: hclog.Info, Output: os.Stderr})
	if err := serve(args[0], args[1], log); err != nil {
		log.Error("the door could not open", "error", err)
		return 1
	}
	return 0
}

func serve(dir, version string, log hclog.Logger) error {
	unix.CloseOnExec(fdReady)
	ready := os.NewFile(fdReady, "ready")
	relay := NewRelay(DefaultLimits(), log)
	before, err := takeOver(dir, relay)
	if err != nil {
		return err
	}
	c, err := listenControl(dir, version, relay)
	if err != nil {
		return err
	}
	before.taken()
	if ready != nil {
		_, _ = ready.Write([]byte{1}) // fails if the agent has ended; the next agent finds the socket
		_ = ready.Close()
	}
	c.run()
	return nil
}

func (c *control) run() {
	ctx, cancel := context.WithCancel(context.Background())
	c.wg.Go(func() { c.accept(ctx) })
	for look := time.NewTicker(200 * time.Millisecond); !c.over(); {
		select {
		case <-look.C:
		case <-c.given:
			c.given = nil
			c.relay.Set(Order{}) // stops listening, because the next door has the listeners
		}
	}
	cancel()
	_ = c.listener.Close()
	c.wg.Wait()
	c.relay.Close()
}

// over reports whether the door can exit. The door can exit if it has no services and no connections, and either got no
// request for longer than unused or does not own the socket in its directory any more. over also makes the door stop
// listening if the door got no request for longer than forsaken, or does not own the socket. Open connections continue.
func (c *control) over() bool {
	silent := time.Since(c.heard())
	if silent > forsaken || !c.owns() {
		c.relay.Set(Order{})
	}
	list := c.relay.Status()
	return len(list) == 0 && c.relay.idle() && (silent > unused || !c.owns())
}

// owns reports whether the socket in the directory is the one that this door made. It returns false if the socket was
// removed or another door has replaced it.
func (c *control) owns() bool {
	info, err := os.Stat(filepath.Join(c.dir, fileControl))
	return err == nil && os.SameFile(info, c.socket)
}
