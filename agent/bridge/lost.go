package bridge

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"

	current "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"
)

// Lost calls tell for each of these containers that lacks a part of its network now, with what is missing: its
// namespace, its interface on the machine's side, or the bridge with its address. It leaves out containers whose
// network is not known. A network that Add makes later is never meant. tell must not block, and must not call the
// Network. Lost blocks while other calls run. What can't be looked at is an error, and nothing is told of it. Code:
// CodeFailed.
func (n *Network) Lost(ctx context.Context, ids []string, tell func(id, what string)) error {
	if len(ids) == 0 {
		return nil
	}
	if err := n.lock(ctx); err != nil {
		return err
	}
	defer n.unlock()
	links, err := listLinks()
	if err != nil {
		return failed("list the interfaces of this machine", err)
	}
	var addresses []netip.Addr
	if bridge, has := links[n.Device()]; has {
		if addresses, err = addressesOf(bridge); err != nil {
			return failed("list the addresses of "+n.Device(), err)
		}
	}
	var first error
	for _, id := range ids {
		rt, result, err := n.remembered(n.bridge(), id)
		if err != nil || rt == nil {
			continue
		}
		what, err := n.missing(links, addresses, rt.NetNS, result)
		if err != nil && first == nil {
			first = failed("look at the network of "+id, err)
		}
		if err == nil && what != "" {
			tell(id, what)
		}
	}
	return first
}

// missing returns what a container lacks of its network, or "". addresses are those of the bridge.
func (n *Network) missing(links map[string]link, addresses []netip.Addr, netns string, result *current.Result) (string,
	error) {
	bridge, has := links[n.Device()]
	kept, err := isNetns(netns)
	switch {
	case err != nil:
		return "", err
	case !kept:
		return "its namespace " + netns + " is gone", nil
	case !has:
		return "the bridge " + n.Device() + " is gone", nil
	case !bridge.up:
		return "the bridge " + n.Device() + " is down", nil
	}
	for _, ip := range result.IPs {
		gateway, ok := netip.AddrFromSlice(ip.Gateway)
		if ok && !slices.Contains(addresses, gateway.Unmap()) {
			return "the bridge " + n.Device() + " has no longer the address " + gateway.Unmap().String(), nil
		}
	}
	for _, i := range result.Interfaces {
		if i.Sandbox != "" || i.Name == n.Device() {
			continue
		}
		switch l, has := links[i.Name]; {
		case !has:
			return "its interface " + i.Name + " is gone", nil
		case !l.up:
			return "its interface " + i.Name + " is down", nil
		case l.master != bridge.index:
			return "its interface " + i.Name + " is not on the bridge " + n.Device(), nil
		}
	}
	return "", nil
}

// addressesOf asks the kernel for the addresses of an interface.
func addressesOf(l link) (addresses []netip.Addr, err error) {
	i := net.Interface{Index: int(l.index)} // all that Addrs needs
	all, err := i.Addrs()
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			addresses = append(addresses, prefix.Addr().Unmap())
		}
	}
	return addresses, err
}

// link is an interface of this machine.
type link struct {
	index, master uint32 // master is the index of its bridge, or 0
	up            bool
}

// listLinks asks the kernel for all interfaces, by name. If interfaces come or go meanwhile, the kernel may leave some
// out, and then it is asked again.
func listLinks() (map[string]link, error) {
	for range 5 {
		links, whole, err := listOnce()
		if err != nil || whole {
			return links, err
		}
	}
	return nil, errors.New("they change all the time")
}

// listOnce is listLinks with one question. It returns false if the list need not be whole.
func listOnce() (links map[string]link, whole bool, err error) {
	b, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
	if err != nil {
		return nil, false, err
	}
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return nil, false, err
	}
	links, whole = map[string]link{}, true
	for _, m := range messages {
		whole = whole && m.Header.Flags&unix.NLM_F_DUMP_INTR == 0
		if m.Header.Type != syscall.RTM_NEWLINK || len(m.Data) < syscall.SizeofIfInfomsg {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return nil, false, err
		}
		// struct ifinfomsg: family and padding, 16 bits of type, 32 each of index, flags and change
		l, name := link{index: binary.NativeEndian.Uint32(m.Data[4:])}, ""
		l.up = binary.NativeEndian.Uint32(m.Data[8:])&syscall.IFF_UP != 0
		for _, a := range attributes {
			switch {
			case a.Attr.Type == syscall.IFLA_IFNAME:
				name = strings.TrimRight(string(a.Value), "\x00")
			case a.Attr.Type == syscall.IFLA_MASTER && len(a.Value) == 4:
				l.master = binary.NativeEndian.Uint32(a.Value)
			}
		}
		links[name] = l
	}
	return links, whole, nil
}

// misses remembers which networks lacked something in the last look at all of them. It may be called from any
// goroutine.
type misses struct {
	mu    sync.Mutex
	look  uint64            // the number of the present look
	since map[string]uint64 // the last look in which the network of an instance lacked something
}

// begin begins a look, and forgets what was missing before the last one.
func (m *misses) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.since, func(_ string, look uint64) bool { return look < m.look })
	m.look++
}

// again records that a network lacks something in this look, and reports whether it did in the last one.
func (m *misses) again(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, before := m.since[id]
	if m.since == nil {
		m.since = map[string]uint64{}
	}
	m.since[id] = m.look
	return before
}

// forget forgets an earlier network of an instance.
func (m *misses) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.since, id)
}

// Lost calls tell for each instance that needs its network and has lost it to somebody else. A network is lost if
// something of it is missing in two calls in a row: while a bridge is repaired, it may be down for a moment. See
// Network.Lost. Lost does nothing while there are no networks. Call it when all instances of an earlier agent were
// adopted, and then every few seconds.
func (k *Keeper) Lost(ctx context.Context, tell func(id, what string)) error {
	k.mu.Lock()
	backend, ids := k.net, make([]string, 0, len(k.uses))
	for id := range k.uses {
		ids = append(ids, id)
	}
	k.mu.Unlock()
	if backend == nil {
		return nil
	}
	k.misses.begin()
	return backend.Lost(ctx, ids, func(id, what string) {
		if k.misses.again(id) {
			tell(id, what)
		}
	})
}
