package bridge

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/outspan/outspan/model"
)

// Subnet returns the range of addresses of the containers. It changes to that of the Config when the last container of
// another one has ended.
func (n *Network) Subnet() netip.Prefix { return *n.subnet.Load() }

// bridgeSubnet returns the subnet of the bridge, if there is one.
func (n *Network) bridgeSubnet() (netip.Prefix, bool) {
	device, err := net.InterfaceByName(n.Device())
	if err != nil {
		return netip.Prefix{}, false
	}
	addresses, _ := device.Addrs() // after an error there is none
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return p.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// pool has the subnets from which Open chooses, 256 of them with 1,021 containers each.
var pool = netip.MustParsePrefix("172.24.0.0/14")

const subnetBits = 22

// chooseSubnet returns the subnet that dir remembers, or chooses one and remembers it. Code: CodeUnavailable if each
// overlaps with a network of this machine, CodeFailed.
func chooseSubnet(dir, seed string) (netip.Prefix, error) {
	file := filepath.Join(dir, "subnet")
	if text, err := os.ReadFile(file); err == nil {
		subnet, err := netip.ParsePrefix(strings.TrimSpace(string(text)))
		if err != nil {
			return netip.Prefix{}, model.Refuse(CodeFailed, "%s: %v", file, err).WithHint("remove the file")
		}
		return subnet, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return netip.Prefix{}, model.Refuse(CodeFailed, "%v", err)
	}
	used, err := networks()
	if err != nil {
		return netip.Prefix{}, model.Refuse(CodeFailed, "list the networks of this machine: %v", err)
	}
	subnet, ok := freeSubnet(seed, used)
	if !ok {
		return netip.Prefix{}, model.Refuse(CodeUnavailable, "each subnet in %s overlaps with a network of this machine",
			pool).
			WithHint("name one in the agent's file: container { subnet = \"10.88.0.0/22\" }")
	}
	if err := os.WriteFile(file, []byte(subnet.String()+"\n"), 0o600); err != nil {
		return netip.Prefix{}, model.Refuse(CodeFailed, "%v", err)
	}
	return subnet, nil
}

// freeSubnet returns a subnet of the pool that overlaps with no used one. Different seeds begin at different places, so
// that two agents of one machine rarely choose the same one at the same time.
func freeSubnet(seed string, used []netip.Prefix) (netip.Prefix, bool) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(seed))
	const count = 1 << (subnetBits - 14)
	first := binary.BigEndian.Uint32(pool.Addr().AsSlice())
	for i := range uint32(count) {
		at := first + (h.Sum32()+i)%count<<(32-subnetBits)
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, at))), subnetBits)
		free := true
		for _, u := range used {
			free = free && !u.Overlaps(subnet)
		}
		if free {
			return subnet, true
		}
	}
	return netip.Prefix{}, false
}

// networks returns the networks of all interfaces and routes of this machine, but the default route.
func networks() ([]netip.Prefix, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var used []netip.Prefix
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			used = append(used, p)
		}
	}
	f, err := os.Open("/proc/net/route")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	routes, err := parseRoutes(f)
	return append(used, routes...), err
}

// parseRoutes reads the kernel's table of IPv4 routes. Numbers in it have the byte order of the machine; outspan runs
// on little-endian ones only.
func parseRoutes(r io.Reader) (routes []netip.Prefix, err error) {
	lines := bufio.NewScanner(r)
	lines.Scan() // the header
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 {
			return nil, fmt.Errorf("route %q has %d fields", lines.Text(), len(fields))
		}
		to, err := littleEndian(fields[1])
		if err != nil {
			return nil, err
		}
		mask, err := littleEndian(fields[7])
		if err != nil {
			return nil, err
		}
		if mask == 0 {
			continue // the default route
		}
		address := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, to)))
		routes = append(routes, netip.PrefixFrom(address, bits.OnesCount32(mask)))
	}
	return routes, lines.Err()
}

func littleEndian(text string) (uint32, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 4 {
		return 0, fmt.Errorf("%q is not an address of a route", text)
	}
	return binary.LittleEndian.Uint32(b), nil
}
