package bridge

import (
	"bufio"
	"bytes"
	"net/netip"
	"os"
	"strings"

	"github.com/outspan/outspan/model"
)

// Resolvers returns the text of a resolv.conf for containers with a network of their own. It is the machine's, unless a
// name server in it listens on a loopback address, as that of systemd-resolved does: a container can't reach that. Then
// it is the list of the servers that systemd-resolved asks. Code: CodeUnavailable if no file names a server that a
// container can reach.
func Resolvers() ([]byte, error) {
	return resolvers("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
}

func resolvers(files ...string) ([]byte, error) {
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && reachable(text) {
			return text, nil
		}
	}
	return nil, model.Refuse(CodeUnavailable, "no name server that a container can reach in %s",
		strings.Join(files, " and ")).
		WithHint("use network = \"host\", or name a server in /etc/resolv.conf that is not on a loopback address")
}

// reachable reports whether a resolv.conf names a server, and none on a loopback address.
func reachable(text []byte) bool {
	named := false
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		address, err := netip.ParseAddr(fields[1])
		if err != nil || address.IsLoopback() {
			return false
		}
		named = true
	}
	return named
}
