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
	// forsaken is how long a door goes on listening without a request from an agent. Without requests its backends get out
	// of date.
	forsaken = time.Hour
	// unused is how long a door without ports, connections and requests waits for an order before it exits.
	unused = 10 * time.Second
	// fdReady is the descriptor on which the door sends one byte to the agent that started it, once it serves.
	fdReady = 3
	// fileControl is the door's socket in its directory. The process whose socket has this name is the door of the
	// directory.
	fileControl = "control"
)

// Main runs the hidden subcommand `door DIR VERSION`. It takes over from a running door, and returns the exit code once
// the door has nothing left to do.
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
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0) // protects the door when memory runs out; needs root
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
		_, _ = ready.Write([]byte{1}) // if the agent is gone, the next one finds the socket
		_ = ready.Close()
	}
	c.run()
	return nil
}

// run serves until the door has nothing left to do.
func (c *control) run() {
	ctx, cancel := context.WithCancel(context.Background())
	c.wg.Go(func() { c.accept(ctx) })
	for look := time.NewTicker(200 * time.Millisecond); !c.over(); {
		select {
		case <-look.C:
		case <-c.given:
			c.given = nil
			c.relay.Set(Order{}) // the next door has the listeners
		}
	}
	cancel()
	_ = c.listener.Close()
	c.wg.Wait()
	c.relay.Close()
}

// over reports whether the door can exit: it has no services and no connections, and it got no request for the time
// unused or lost its directory. A door loses its directory when that is removed or belongs to another door. If the door
// lost its directory, or got no request for the time forsaken, over first makes it stop listening. Open connections
// continue.
func (c *control) over() bool {
	silent := time.Since(c.heard())
	if silent > forsaken || !c.owns() {
		c.relay.Set(Order{})
	}
	list := c.relay.Status()
	return len(list) == 0 && c.relay.idle() && (silent > unused || !c.owns())
}

// owns reports whether the socket in the directory is still that of this door.
func (c *control) owns() bool {
	info, err := os.Stat(filepath.Join(c.dir, fileControl))
	return err == nil && os.SameFile(info, c.socket)
}
