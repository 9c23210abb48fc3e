package httpapi_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
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

// A source of many connections loses those that have shown no good token, not the one that has.
func TestGoodTokenKeepsConnection(t *testing.T) {
	r := newRig(t, "s1")
	r.world()
	ask := func(more string) string { return "GET /v1/nodes HTTP/1.1\r\nHost: x\r\n" + more + "\r\n" }
	address := r.servers["s1"].address
	good := ask("Authorization: Bearer " + r.grantToken("ci", model.Hour, "viewer").Reveal() + "\r\n")
	status := func(c *tls.Conn) int {
		_ = c.SetReadDeadline(time.Now().Add(15 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Log(err)
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	kept := strangers(t, address, 1, 1, good)[0]
	if got := status(kept); got != http.StatusOK {
		t.Fatal(got)
	}
	many := strangers(t, address, 1, 256, ask(""))
	if got := status(many[255]); got != http.StatusUnauthorized && got != http.StatusTooManyRequests {
		t.Error(got)
	}
	if _, err := fmt.Fprint(kept, good); err != nil || status(kept) != http.StatusOK {
		t.Errorf("the connection with a good token made room for another one: %v", err)
	}
}
