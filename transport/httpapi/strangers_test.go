package httpapi_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// strangers opens a connection from each of several sources, and sends text through it.
func strangers(t *testing.T, address string, sources, each int, text string) (open []*tls.Conn) {
	t.Helper()
	for i := range sources * each {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%sources))}}
		conn, err := tls.DialWithDialer(&from, "tcp", address, &tls.Config{InsecureSkipVerify: true,
			NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprint(conn, text); err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	return open
}

// Strangers who announce large bodies, and send one byte, take no memory from people and agents, nor from each other.
func TestPromisesOfStrangers(t *testing.T) {
	r, checked := signInRig(t)
	bodies := transport.NewBodies(1<<20, 4<<20)
	s := r.startWith("s3", func(c *httpapi.Config) { c.SignIn, c.Bodies = fakeSignIn(checked), bodies })
	r.setLeader("s3")
	r.apply(&fsm.BindingAdd{Role: "admin", To: "oidc:" + issuer + "#*"})
	for _, size := range []int{1 << 20, 64 << 10} {
		strangers(t, s.address, 5, 4, fmt.Sprintf("POST /v1/auth/login HTTP/1.1\r\nHost: x\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n{", size))
	}
	time.Sleep(100 * time.Millisecond)
	b := newBare(t, s)
	reply, p := b.login("alice")
	if p != nil {
		t.Fatal(p)
	}
	binding := map[string]string{"role": "viewer", "to": "cert:x"}
	if p := b.call("POST", "/v1/bindings", reply.Text, binding, nil); p != nil {
		t.Error(p)
	}
	p = b.call("POST", "/v1/auth/login", "", api.LoginBody{IDToken: strings.Repeat("x", 64<<10)}, nil)
	wantRefused(t, p, model.CodeTooLarge, "65536 bytes")
}
