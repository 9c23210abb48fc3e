package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/outspan/outspan/model"
)

// Codes of the errors that this package returns.
const (
	CodeUnavailable model.Code = "bridge_unavailable" // this machine can't have a bridge; the message says why
	CodeFailed      model.Code = "bridge_failed"      // a plugin or the kernel refused; the message has its words
	CodePortTaken   model.Code = "port_taken"         // another process or instance uses a port of the machine
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
	// Address is the machine's own address. Mapped ports are open on it alone.
	Address netip.Addr
	// Subnet has the addresses of the containers, IPv4 with at most 28 bits. The zero value lets Open choose a /22 that
	// overlaps with no address and no route of this machine, and remember it in Dir.
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
}

// Network is the bridge of one agent. Safe for concurrent use. Calls about the same container must not overlap.
type Network struct {
	cfg Config
	tag string // eight hexadecimal digits, derived from the node's id
	cni *libcni.CNIConfig

	mu    sync.Mutex
	ports map[string][]*os.File // sockets that hold the ports of a container, by its id
}

// pluginLimit bounds one call of the plugins.
const pluginLimit = 30 * time.Second

// Open checks that this machine can have a bridge, and prepares its firewall. It makes no bridge: the first Add does.
// Blocks for less than a second, or up to 30 s if another program holds the lock of the firewall. Codes:
// CodeUnavailable if a plugin or the program iptables is missing, CodeFailed.
func Open(ctx context.Context, cfg Config) (*Network, error) {
	if cfg.Plugins == "" {
		cfg.Plugins = defaultPlugins()
	}
	for _, name := range []string{"bridge", "host-local", "portmap", "loopback"} {
		if _, err := os.Stat(filepath.Join(cfg.Plugins, name)); err != nil {
			return nil, model.Refuse(CodeUnavailable, "no CNI plugin %s in %s", name, cfg.Plugins).
				WithHint("install the CNI plugins: apt-get install containernetworking-plugins")
		}
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "netns"), 0o700); err != nil {
		return nil, model.Refuse(CodeFailed, "%v", err)
	}
	if !cfg.Subnet.IsValid() {
		subnet, err := chooseSubnet(cfg.Dir, string(cfg.Node))
		if err != nil {
			return nil, err
		}
		cfg.Subnet = subnet
	}
	if cfg.Subnet = cfg.Subnet.Masked(); !cfg.Subnet.Addr().Is4() || cfg.Subnet.Bits() > 28 {
		return nil, model.Refuse(model.CodeInvalid, "the subnet %s is not IPv4 with at most 28 bits", cfg.Subnet)
	}
	n := &Network{
		cfg: cfg, tag: tagOf(cfg.Node), ports: map[string][]*os.File{},
		cni: libcni.NewCNIConfigWithCacheDir([]string{cfg.Plugins}, filepath.Join(cfg.Dir, "results"), nil),
	}
	if _, err := n.guard(ctx); err != nil {
		return nil, err
	}
	return n, nil
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

// Subnet returns the range of addresses of the containers.
func (n *Network) Subnet() netip.Prefix { return n.cfg.Subnet }

// Device returns the name of the bridge.
func (n *Network) Device() string { return "osp-" + n.tag }

// Add makes the namespace of a container, connects it, and maps its ports. If it fails, nothing is left. id must be
// usable as a file name. Blocks for some hundred milliseconds, at most 90 s. Codes: CodePortTaken, CodeFailed.
func (n *Network) Add(ctx context.Context, id string, mappings []Mapping) (Attachment, error) {
	if err := n.Hold(id, mappings); err != nil {
		return Attachment{}, err
	}
	a, err := n.attach(ctx, id, mappings)
	if err != nil {
		_ = n.Remove(context.WithoutCancel(ctx), id) // the first error says more
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

// Hold binds the machine's side of the mappings without listening, so that no other program can bind them: the firewall
// leads connections past it. Add does this itself. An agent that finds a container of an earlier run calls Hold for it.
// Hold does nothing if the container holds ports already. Code: CodePortTaken.
func (n *Network) Hold(id string, mappings []Mapping) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.ports[id]) > 0 {
		return nil
	}
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

// Remove undoes Add. It does nothing if nothing is left of the container's network. Blocks for about 100 ms, at most
// 90 s. Code: CodeFailed; call it again then.
func (n *Network) Remove(ctx context.Context, id string) error {
	attached, err := n.attached()
	if err != nil {
		return err
	}
	if slices.Contains(attached, id) {
		if err := n.detach(ctx, id); err != nil {
			return err
		}
	}
	if err := removeNetns(n.netns(id)); err != nil {
		return model.Refuse(CodeFailed, "remove a network namespace: %v", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	closeAll(n.ports[id])
	delete(n.ports, id)
	return nil
}

// Sweep removes the network of every container for which keep returns false, and restores what the firewall lost of the
// others (see Repair). Call it when the agent has adopted its containers. It returns the first error, and goes on.
func (n *Network) Sweep(ctx context.Context, keep func(id string) bool) error {
	attached, err := n.attached()
	if err != nil {
		return err
	}
	var first error
	for _, id := range attached {
		if !keep(id) {
			if err := n.Remove(ctx, id); err != nil && first == nil {
				first = err
			}
		}
	}
	if _, err := n.Repair(ctx); err != nil && first == nil {
		first = err
	}
	return first
}

// attached lists the ids of all containers that have a namespace or a result of a plugin.
func (n *Network) attached() ([]string, error) {
	files, err := os.ReadDir(filepath.Join(n.cfg.Dir, "netns"))
	if err != nil {
		return nil, model.Refuse(CodeFailed, "%v", err)
	}
	cached, err := n.cni.GetCachedAttachments("")
	if err != nil && !os.IsNotExist(err) {
		return nil, model.Refuse(CodeFailed, "read the results of plugins: %v", err)
	}
	var ids []string
	for _, f := range files {
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
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, held := range n.ports {
		closeAll(held)
	}
	clear(n.ports)
	return nil
}

// Remnants removes the bridge and the rules of this node. Call it when the node is uninstalled: it disconnects every
// container that is left. Codes: CodeFailed.
func (n *Network) Remnants(ctx context.Context) error {
	if err := n.unguard(ctx); err != nil {
		return err
	}
	if _, err := net.InterfaceByName(n.Device()); err != nil {
		return nil // no container ever had an address
	}
	_, err := run(ctx, "ip", "link", "delete", n.Device())
	return err
}

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
