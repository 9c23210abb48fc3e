package ui

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// established is the state of an open connection in /proc/net/tcp. In other states the kernel shows the user 0 for
// sockets that no process has any more.
const established = "01"

// userAt returns the user id of the process at the other end of a connection on this machine: that of the socket with
// the local address from and the remote address to. It returns an error if there is no such socket.
func userAt(from, to netip.AddrPort) (int, error) {
	for _, table := range [...]string{"/proc/net/tcp", "/proc/net/tcp6"} {
		uid, found, err := findSocket(table, from, to)
		switch {
		case err != nil && !os.IsNotExist(err): // a kernel without IPv6 has no second table
			return 0, err
		case found:
			return uid, nil
		}
	}
	return 0, fmt.Errorf("no connection from %s to %s", from, to)
}

func findSocket(table string, from, to netip.AddrPort) (uid int, found bool, err error) {
	f, err := os.Open(table)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid ...
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[3] != established || parseSocket(fields[1]) != from || parseSocket(fields[2]) != to {
			continue
		}
		uid, err := strconv.Atoi(fields[7])
		return uid, err == nil, err
	}
	return 0, false, lines.Err()
}

// parseSocket parses an address such as 0100007F:1F90. The kernel writes each four bytes of the address as a number in
// the byte order of the machine. For any other text the result is invalid.
func parseSocket(text string) netip.AddrPort {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	n, badPort := strconv.ParseUint(port, 16, 16)
	if err != nil || badPort != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n))
}
