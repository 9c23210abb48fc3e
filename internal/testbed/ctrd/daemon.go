// Package ctrd starts a containerd of its own for tests, and makes images and a registry without a network.
package ctrd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Daemon is a containerd with directories and sockets of its own. It shares nothing with the machine's containerd. Each
// namespace fetches its content itself, as the nodes of a cluster do.
type Daemon struct {
	// Socket is where it listens, also after Restart.
	Socket string
	// Program is what Restart runs. Start sets it to containerd, which is looked for in PATH.
	Program string
	dir     string
	cmd     *exec.Cmd
	out     *os.File
}

// Start starts a containerd with everything below dir, whose path must be short enough for a socket. It blocks until
// the daemon accepts connections, for up to 20 s. The caller must call Kill.
func Start(dir string) (*Daemon, error) {
	d := &Daemon{dir: dir, Socket: filepath.Join(dir, "s"), Program: "containerd"}
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = %q
[ttrpc]
address = %q
[plugins."io.containerd.metadata.v1.bolt"]
content_sharing_policy = "isolated"
`, filepath.Join(dir, "root"), filepath.Join(dir, "state"), d.Socket, d.Socket+".ttrpc")
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	if err := d.Restart(); err != nil {
		return nil, err
	}
	return d, nil
}

// Restart starts the daemon again after Kill or Stop.
func (d *Daemon) Restart() error {
	out, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_ = os.Remove(d.Socket)
	d.cmd = exec.Command(d.Program, "--config", filepath.Join(d.dir, "config.toml"))
	d.cmd.Stdout, d.cmd.Stderr, d.out = out, out, out
	if err := d.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", d.Socket)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			said, _ := os.ReadFile(out.Name())
			return errors.Join(fmt.Errorf("containerd does not listen: %w; it said: %s", err, said), d.Kill())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop asks the daemon to end, as its unit does. It returns an error if that takes longer than 20 s.
func (d *Daemon) Stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop containerd: %w", err)
	}
	late := time.AfterFunc(20*time.Second, func() { _ = d.cmd.Process.Kill() })
	defer late.Stop()
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("containerd does not stop as it should: %w", err)
	}
	return d.out.Close()
}

// PID returns the process id of the daemon.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Wipe deletes everything that the daemon keeps on the disk. It must not run.
func (d *Daemon) Wipe() error {
	return errors.Join(os.RemoveAll(filepath.Join(d.dir, "root")), os.RemoveAll(filepath.Join(d.dir, "state")))
}

// Kill kills the daemon, as a crash would. What it keeps on the disk stays.
func (d *Daemon) Kill() error {
	err := d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	return errors.Join(err, d.out.Close())
}
