package transport

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"

	"github.com/outspan/outspan/model"
)

// ListenTCP opens a TCP port. addr is host:port; port 0 takes a free one. Codes: address_in_use, listen_failed.
func ListenTCP(ctx context.Context, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err == nil {
		return l, nil
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, model.Refuse(model.CodeAddressInUse, "another process listens on %s", addr).
			WithHint("stop it, or set another listen.port")
	}
	return nil, model.Refuse(model.CodeListen, "can't listen on %s: %v", addr, err).
		WithHint("check listen.address and listen.port")
}

// IsLoopback reports whether addr, a host or host:port, can only be reached from this machine. The only accepted name
// is localhost. An empty host means every interface, so it is not loopback.
func IsLoopback(addr string) bool {
	host := addr
	if h, port, err := net.SplitHostPort(addr); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
			return false
		}
		host = h
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
