package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// newNetns makes a network namespace and keeps it at path, which must not exist yet.
func newNetns(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	_ = f.Close()
	done := make(chan error, 1)
	go func() {
		// The thread ends with this goroutine, because it stays locked. So no other code runs in the new namespace.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			own := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
			if err := unix.Mount(own, path, "none", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("keep the namespace at %s: %w", path, err)
			}
			return nil
		}()
	}()
	if err := <-done; err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// removeNetns removes a namespace. Processes that are still in it keep it alive. It does nothing if path doesn't exist.
func removeNetns(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// isNetns reports whether a namespace is kept at path.
func isNetns(path string) (bool, error) {
	var fs unix.Statfs_t
	err := unix.Statfs(path, &fs)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	return fs.Type == unix.NSFS_MAGIC, nil
}

// bindPort binds a TCP port without listening. The file holds the port until it is closed. While connections of an
// earlier program are being forgotten (TIME_WAIT), the port can only be bound so that another program may bind it too.
func bindPort(address netip.Addr, port uint16) (*os.File, error) {
	f, err := bindOnce(address, port, false)
	if errors.Is(err, unix.EADDRINUSE) {
		f, err = bindOnce(address, port, true)
	}
	return f, err
}

func bindOnce(address netip.Addr, port uint16, shared bool) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("port %d", port))
	if shared {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: address.As4()}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// uplinkMTU returns the MTU of the interface that has the address, so that packets of containers fit through it. It
// returns 0, the plugin's default, for an address of no interface, and for the loopback interface, whose MTU is no
// limit of a network.
func uplinkMTU(address netip.Addr) int {
	all, err := net.Interfaces()
	if err != nil {
		return 0
	}
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		for _, a := range addresses {
			if ip, _, _ := strings.Cut(a.String(), "/"); ip == address.String() {
				return i.MTU
			}
		}
	}
	return 0
}
