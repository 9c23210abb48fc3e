package local

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// globalAddresses returns the IPv4 addresses of this machine that are neither loopback nor link-local, of interfaces
// that are up.
func globalAddresses() []string {
	var own []string
	interfaces, _ := net.Interfaces() // without a list, the user is asked for an address
	for _, one := range interfaces {
		addresses, err := one.Addrs()
		if err != nil || one.Flags&net.FlagUp == 0 {
			continue
		}
		for _, address := range addresses {
			network, ok := address.(*net.IPNet)
			if ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() && !slices.Contains(own, network.IP.String()) {
				own = append(own, network.IP.String())
			}
		}
	}
	return own
}

// checkPorts refuses ports on which another process listens. Code: address_in_use, listen_failed.
func checkPorts(ctx context.Context, cfg *config.Config) error {
	hint := func(e *model.Error) error {
		return e.WithHint("stop it first: outspan needs the ports %d and %d", cfg.Listen.Port, cfg.Listen.GossipPort)
	}
	address := net.JoinHostPort(cfg.Listen.Address, strconv.Itoa(cfg.Listen.Port))
	l, err := transport.ListenTCP(ctx, address)
	switch refusal := (*model.Error)(nil); {
	case err == nil:
		_ = l.Close() // the port was free
	case errors.As(err, &refusal) && refusal.Code == model.CodeAddressInUse:
		return hint(refusal)
	default:
		return err
	}
	if !cluster.GossipPortFree(cfg.Listen.Address, cfg.Listen.GossipPort) {
		return hint(model.Refuse(model.CodeAddressInUse, "another process listens on %s (TCP or UDP)",
			net.JoinHostPort(cfg.Listen.Address, strconv.Itoa(cfg.Listen.GossipPort))))
	}
	return nil
}

// writable refuses directories that this user can't write. Code: forbidden.
func (o *setupFlags) writable(cfg *config.Config) error {
	dirs := []string{o.configDir, cfg.DataDir}
	if cfg.Agent != nil {
		dirs = append(dirs, daemon.AgentDataDir(cfg))
	}
	for _, dir := range dirs {
		there := dir
		for !exists(there) && there != filepath.Dir(there) {
			there = filepath.Dir(there)
		}
		if unix.Access(there, unix.W_OK|unix.X_OK) == nil {
			continue
		}
		e := model.Refuse(model.CodeForbidden, "this user can't write to %s", dir)
		if os.Geteuid() == 0 {
			return e.WithHint("choose other directories: --config DIR --data DIR")
		}
		return e.WithHint("run it with sudo, or choose directories of your own: --config DIR --data DIR")
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
