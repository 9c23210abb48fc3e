package bridge

import (
	"bufio"
	"bytes"
	"errors"
	"net/netip"
	"os"
	"strings"

	"github.com/outspan/outspan/model"
)

// Resolvers returns the text of a resolv.conf for containers with a network of their own. It is the machine's, which
// may name no server, unless a name server in it listens on a loopback address, as that of systemd-resolved does: a
// container can't reach that. Then it is the list of the servers that systemd-resolved asks. Code: CodeUnavailable if
// that list does not help either.
func Resolvers() ([]byte, error) {
	return resolvers("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
}

func resolvers(own, upstream string) ([]byte, error) {
	text, err := os.ReadFile(own)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, model.Refuse(CodeUnavailable, "read the name servers: %v", err)
	}
	if reachable(text) {
		return text, nil
	}
	if text, err := os.ReadFile(upstream); err == nil && reachable(text) {
		return text, nil
	}
	return nil, model.Refuse(CodeUnavailable, "no name server that a container can reach in %s and %s", own, upstream).
		WithHint("use network = \"host\", or name a server in /etc/resolv.conf that is not on a loopback address")
}

// reachable reports whether a resolv.conf names no server on a loopback address.
func reachable(text []byte) bool {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if address, err := netip.ParseAddr(fields[1]); err != nil || address.IsLoopback() {
			return false
		}
	}
	return true
}
