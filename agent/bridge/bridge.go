package bridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/outspan/outspan/model"
)

// Codes of the errors that this package returns.
const (
	CodeUnavailable model.Code = "bridge_unavailable" // this machine can't have a bridge; the message says why
	CodeFailed      model.Code = "bridge_failed"      // a plugin or the kernel refused; the message has its words
	CodePortTaken   model.Code = "port_taken"         // another process or instance uses a port of the machine
	CodeLost        model.Code = "network_lost"       // somebody else removed a part of a container's network
)

// Config describes the network of one agent.
type Config struct {
	// Node is the id of the node. All names are derived from it.
	Node model.NodeID
	// Dir is an absolute path on a local disk, for the agent's use alone. It has the namespaces, the leases of addresses
	// and what the plugins must know to undo their work.
	Dir string
	// Plugins is the directory with the CNI plugins. Default: the first of /usr/lib/cni and /opt/cni/bin that exists.
	Plugins string
	// Address is the machine's own IPv4 address. Mapped ports are open on it alone.
	Address netip.Addr
	// Subnet has the addresses of the containers, IPv4 with at most 28 bits. While containers of another subnet run, that
	// one is used. The zero value lets Open choose a /22 that overlaps with no address and no route of this machine, and
	// remember it in Dir.
	Subnet netip.Prefix
}

// Mapping leads a TCP port of the machine to a port of the container.
type Mapping struct {
	Host      uint16 // port of Config.Address
	Container uint16
}

// Attachment is the network of one container.
type Attachment struct {
	Netns   string     // path of the network namespace
	Address netip.Addr // of the container
	Gateway netip.Addr // of the machine, on the bridge
	Hosts   string     // path of a file for /etc/hosts
	Resolv  string     // path of a file for /etc/resolv.conf
}

// Network is the bridge of one agent. The bridge and its rules of the firewall exist while a container is connected.
// Safe for concurrent use: calls wait for each other.
type Network struct {
	cfg Config
	tag string // eight hexadecimal digits, derived from the node's id
	cni *libcni.CNIConfig

	subnet atomic.Pointer[netip.Prefix] // in use: cfg.Subnet, or until the bridge is removed that of an earlier process

	turn    chan struct{}         // capacity 1; full while a call runs
	ports   map[string][]*os.File // sockets that hold the ports of a container, by its id
	guarded bool                  // this process has made rules of the firewall, or found them
}

// pluginLimit bounds one call of the plugins.
const pluginLimit = 30 * time.Second

// Open checks that this machine can have a bridge, and chooses its subnet. It makes nothing but files in Dir. Codes:
// those of Check, CodeInvalid (the subnet), CodeFailed (Dir).
func Open(cfg Config) (*Network, error) {
	if cfg.Plugins == "" {
		cfg.Plugins = defaultPlugins()
	}
	n := &Network{
		cfg: cfg, tag: tagOf(cfg.Node), turn: make(chan struct{}, 1), ports: map[string][]*os.File{},
		cni: libcni.NewCNIConfigWithCacheDir([]string{cfg.Plugins}, filepath.Join(cfg.Dir, "results"), nil),
	}
	if err := n.Check(); err != nil {
		return nil, err
	}
	for _, dir := range []string{n.netns(""), n.files("")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, model.Refuse(CodeFailed, "%v", err)
		}
	}
	if !cfg.Subnet.IsValid() {
		subnet, err := chooseSubnet(cfg.Dir, string(cfg.Node))
		if err != nil {
			return nil, err
		}
		n.cfg.Subnet = subnet
	}
	n.cfg.Subnet = n.cfg.Subnet.Masked()
	if !n.cfg.Subnet.Addr().Is4() || n.cfg.Subnet.Bits() > 28 {
		return nil, model.Refuse(model.CodeInvalid, "the subnet %s is not IPv4 with at most 28 bits", n.cfg.Subnet)
	}
	n.subnet.Store(&n.cfg.Subnet)
	if used, ok := n.bridgeSubnet(); ok {
		n.subnet.Store(&used)
	}
	return n, nil
}

// Check returns CodeUnavailable if the machine lacks something that containers with a network of their own need. It
// only looks at files.
func (n *Network) Check() error {
	if !n.cfg.Address.Is4() {
		return model.Refuse(CodeUnavailable, "the node's address %s is not IPv4", n.cfg.Address)
	}
	for _, name := range []string{"bridge", "host-local", "portmap", "loopback"} {
		if _, err := os.Stat(filepath.Join(n.cfg.Plugins, name)); err != nil {
			return model.Refuse(CodeUnavailable, "no CNI plugin %s in %s", name, n.cfg.Plugins).
				WithHint("install the CNI plugins: apt-get install containernetworking-plugins")
		}
	}
	if _, err := exec.LookPath("iptables"); err != nil {
		return model.Refuse(CodeUnavailable, "no program iptables").WithHint("install iptables")
	}
	_, err := Resolvers()
	return err
}

func defaultPlugins() string {
	paths := []string{"/usr/lib/cni", "/opt/cni/bin"}
	i := slices.IndexFunc(paths, func(p string) bool { _, err := os.Stat(p); return err == nil })
	return paths[max(i, 0)]
}

// tagOf returns a name for the things of one node that is short enough for an interface.
func tagOf(node model.NodeID) string {
	sum := sha256.Sum256([]byte(node))
	return hex.EncodeToString(sum[:4])
}

// Device returns the name of the bridge.
func (n *Network) Device() string { return "osp-" + n.tag }

// Add makes the namespace of a container, connects it, maps its ports, and writes its files. It first removes what an
// earlier Add for the id has left. If it fails, nothing is left. id must be usable as a file name. Blocks for some
// hundred milliseconds, at most 90 s, and while other calls run. Codes: CodePortTaken, CodeUnavailable, CodeFailed.
func (n *Network) Add(ctx context.Context, id, hostname string, mappings []Mapping) (Attachment, error) {
	if err := n.lock(ctx); err != nil {
		return Attachment{}, err
	}
	defer n.unlock()
	if err := n.remove(ctx, id); err != nil {
		return Attachment{}, err
	}
	if err := n.hold(id, mappings); err != nil {
		return Attachment{}, err
	}
	a, err := n.attach(ctx, id, mappings)
	if err == nil {
		err = n.write(&a, id, hostname)
	}
	if err != nil {
		_ = n.removeLast(context.WithoutCancel(ctx), id) // the first error says more
		return Attachment{}, err
	}
	return a, nil
}

func (n *Network) attach(ctx context.Context, id string, mappings []Mapping) (Attachment, error) {
	path := n.netns(id)
	if err := newNetns(path); err != nil {
		return Attachment{}, model.Refuse(CodeFailed, "make a network namespace: %v", err)
	}
	if _, err := n.call(ctx, n.loopback(), n.runtime(id, nil), add); err != nil {
		return Attachment{}, err
	}
	result, err := n.call(ctx, n.bridge(), n.runtime(id, nil), add)
	if err != nil {
		return Attachment{}, err
	}
	// The bridge exists by now, so Sweep finds the rules even if this process is killed.
	if _, err := n.guard(ctx); err != nil {
		return Attachment{}, err
	}
	if len(result.IPs) != 1 {
		return Attachment{}, model.Refuse(CodeFailed, "the plugin bridge gave %d addresses, not one", len(result.IPs))
	}
	address, ok := netip.AddrFromSlice(result.IPs[0].Address.IP)
	gateway, has := netip.AddrFromSlice(result.IPs[0].Gateway)
	if !ok || !has {
		return Attachment{}, model.Refuse(CodeFailed, "the plugin bridge gave no usable address: %v", result.IPs[0])
	}
	if len(mappings) > 0 {
		if _, err := n.call(ctx, n.portmap(result), n.runtime(id, mappings), add); err != nil {
			return Attachment{}, err
		}
	}
	return Attachment{Netns: path, Address: address.Unmap(), Gateway: gateway.Unmap()}, nil
}

// write writes the files of a container.
func (n *Network) write(a *Attachment, id, hostname string) error {
	servers, err := Resolvers()
	if err != nil {
		return err
	}
	dir := n.files(id)
	a.Hosts, a.Resolv = filepath.Join(dir, "hosts"), filepath.Join(dir, "resolv.conf")
	hosts := "127.0.0.1\tlocalhost\n" + a.Address.String() + "\t" + hostname + "\n"
	err = os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.WriteFile(a.Hosts, []byte(hosts), 0o644)
	}
	if err == nil {
		err = os.WriteFile(a.Resolv, servers, 0o644)
	}
	if err != nil {
		return model.Refuse(CodeFailed, "%v", err)
	}
	return nil
}

// hold binds the machine's side of the mappings without listening, so that no other program can bind them: the firewall
// leads connections past such a program.
func (n *Network) hold(id string, mappings []Mapping) error {
	var held []*os.File
	for _, m := range mappings {
		socket, err := bindPort(n.cfg.Address, m.Host)
		if err != nil {
			closeAll(held)
			return model.Refuse(CodePortTaken, "port %d of %s: %v", m.Host, n.cfg.Address, err)
		}
		held = append(held, socket)
	}
	n.ports[id] = held
	return nil
}

// Remove undoes Add. It does nothing if nothing is left of the container's network. With the last container it also
// removes the bridge and its rules. Blocks for about 100 ms, at most 90 s, and while other calls run, but not when ctx
// has ended. Code: CodeFailed; call it again then.
func (n *Network) Remove(ctx context.Context, id string) error {
	if err := n.lock(ctx); err != nil {
		return err
	}
	defer n.unlock()
	return n.removeLast(ctx, id)
}

func (n *Network) removeLast(ctx context.Context, id string) error {
	if err := n.remove(ctx, id); err != nil {
		return err
	}
	if left, err := n.attached(); err != nil || len(left) > 0 {
		return err
	}
	return n.removeBridge(ctx)
}

func (n *Network) remove(ctx context.Context, id string) error {
	attached, err := n.attached()
	if err != nil {
		return err
	}
	if slices.Contains(attached, id) {
		if err := n.detach(ctx, id); err != nil {
			return err
		}
	}
	if err := errors.Join(removeNetns(n.netns(id)), os.RemoveAll(n.files(id))); err != nil {
		return model.Refuse(CodeFailed, "remove the network of container %s: %v", id, err)
	}
	closeAll(n.ports[id])
	delete(n.ports, id)
	return nil
}

// Sweep removes the network of every container for which keep returns false, and the bridge and its rules if no
// container is left. It returns the first error, and goes on. stays reports whether something may be left of a
// container's network.
func (n *Network) Sweep(ctx context.Context, keep func(id string) bool) (stays func(id string) bool, err error) {
	all := func(string) bool { return true }
	if err := n.lock(ctx); err != nil {
		return all, err
	}
	defer n.unlock()
	attached, err := n.attached()
	if err != nil {
		return all, err
	}
	var first error
	for _, id := range attached {
		if !keep(id) {
			if err := n.remove(ctx, id); err != nil && first == nil {
				first = err
			}
		}
	}
	left, err := n.attached()
	if err != nil {
		return all, cmp.Or(first, err)
	}
	if len(left) == 0 {
		err = n.removeBridge(ctx)
	}
	return func(id string) bool { return slices.Contains(left, id) }, cmp.Or(first, err)
}

// lock waits until no other call runs. Code: CodeFailed if ctx ends first.
func (n *Network) lock(ctx context.Context) error {
	select {
	case n.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return model.Refuse(CodeFailed, "the networks of other containers keep the bridge busy: %v", ctx.Err())
	}
}

func (n *Network) unlock() { <-n.turn }

// attached lists the ids of all containers that have a namespace, files or a result of a plugin.
func (n *Network) attached() ([]string, error) {
	files, err := os.ReadDir(n.netns(""))
	if err != nil {
		return nil, model.Refuse(CodeFailed, "%v", err)
	}
	cached, err := n.cni.GetCachedAttachments("")
	if err != nil && !os.IsNotExist(err) {
		return nil, model.Refuse(CodeFailed, "read the results of plugins: %v", err)
	}
	written, err := os.ReadDir(n.files(""))
	if err != nil {
		return nil, model.Refuse(CodeFailed, "%v", err)
	}
	var ids []string
	for _, f := range append(files, written...) {
		ids = append(ids, f.Name())
	}
	for _, a := range cached {
		ids = append(ids, a.ContainerID)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Close lets go of the held ports. Containers keep their network.
func (n *Network) Close() error {
	n.turn <- struct{}{}
	defer n.unlock()
	for _, held := range n.ports {
		closeAll(held)
	}
	clear(n.ports)
	return nil
}

// removeBridge removes the rules of this node, and then its bridge, if there is one. While there is a bridge, there may
// be rules. There may also be some if somebody else removed the bridge.
func (n *Network) removeBridge(ctx context.Context) error {
	_, none := net.InterfaceByName(n.Device())
	if none == nil || n.guarded {
		if err := n.unguard(ctx); err != nil {
			return err
		}
		n.guarded = false
	}
	if none == nil {
		if _, err := run(ctx, "ip", "link", "delete", n.Device()); err != nil {
			return failed("remove the bridge", err)
		}
	}
	n.subnet.Store(&n.cfg.Subnet)
	return nil
}

func (n *Network) files(id string) string { return filepath.Join(n.cfg.Dir, "files", id) }

func (n *Network) netns(id string) string { return filepath.Join(n.cfg.Dir, "netns", id) }

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// failed returns the error for a plugin or a program that refused.
func failed(what string, err error) error {
	return model.Refuse(CodeFailed, "%s: %s", what, fmt.Sprint(err))
}
