package agent

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"

	"github.com/outspan/outspan/internal/duplex"
)

// A caller that opens connections without end, and does not read that they are refused, ends its forward. The
// program gets no more than maxTunnelled connections.
func TestTunnelRefusesAFlood(t *testing.T) {
	program, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	connections := make(chan int)
	go func() {
		var open []net.Conn
		for {
			conn, err := program.Accept()
			if err != nil {
				break
			}
			open = append(open, conn)
		}
		connections <- len(open)
		for _, conn := range open {
			conn.Close()
		}
	}()
	out, unread := net.Pipe()
	defer unread.Close()
	var flood []byte
	for n := range uint32(10 * maxTunnelled) {
		flood = duplex.Frame{Kind: duplex.KindOpen, Lane: n + 1}.Append(flood)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tun := &tunnel{ctx: ctx, to: program.Addr().String(),
		room: make(chan struct{}, maxTunnelled), refusals: make(chan struct{}, maxTunnelled)}
	conn := duplex.NewConn(bytes.NewReader(flood), out)
	if err := conn.Run(duplex.Handler{Open: tun.open}); !errors.Is(err, duplex.ErrFrame) {
		t.Errorf("the flood ended with %v", err)
	}
	cancel()
	out.Close()
	tun.wg.Wait()
	program.Close()
	if n := <-connections; n > maxTunnelled {
		t.Errorf("%d connections to the program, want at most %d", n, maxTunnelled)
	}
}
