package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// mayGrow is the number of bytes by which a server's memory may grow while clients with and without certificates send
// as much as they can.
const mayGrow = 100 << 20

// In testGreed, clients send reads and writes with large bodies that never end, and gossip streams of 20 MiB. They must
// not fill the servers' memory, and other clients must be served meanwhile.
func testGreed(t *testing.T, c *cluster) {
	c.run(t, job{name: "web", count: 4})
	largest := c.sampleMemory(t)
	before := largest()
	var open []net.Conn
	var sending sync.WaitGroup
	var refused atomic.Int64
	send := func(conn net.Conn, head string, size int) {
		open = append(open, conn)
		sending.Go(func() {
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			_, _ = conn.Write(append([]byte(head), bytes.Repeat([]byte{' '}, size)...))
			answer, _ := io.ReadAll(io.LimitReader(conn, 64))
			if strings.HasPrefix(string(answer), "HTTP/1.1 400") || strings.HasPrefix(string(answer), "HTTP/1.1 503") {
				refused.Add(1)
			}
		})
	}
	config := c.tlsConfig(t, "cli-me", "http/1.1")
	c.undisturbed(t, func() {
		for _, request := range []string{"GET /v1/nodes?index=999999999&wait=50s", "POST /v1/jobs"} {
			for i := range 400 {
				conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", c.servers[i%2].api(), config)
				if err != nil {
					continue // the servers limit the connections of one identity
				}
				send(conn, fmt.Sprintf("%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
					request, 1<<20), 1<<20-1)
			}
		}
		const label = "outspan"
		for i := range 60 {
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(c.servers[i%2].address, "7642"), 5*time.Second)
			if err != nil {
				continue // refused
			}
			// memberlist's label header, then an encrypted message of 20 MiB
			send(conn, "\xf4"+string(rune(len(label)))+label+"\x0a\x01\x40\x00\x00", 20<<20-1)
		}
		for range 3 {
			began := time.Now()
			c.must(t, "node", "ls")
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("a command took %s meanwhile", took)
			}
		}
		sending.Wait()
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	for name, after := range largest() {
		grown := after - before[name]
		t.Logf("%s: %d MB, then at most %d MB", name, before[name]>>20, after>>20)
		if grown > mayGrow {
			t.Errorf("%s grew by %d MB, at most %d are allowed", name, grown>>20, mayGrow>>20)
		}
	}
	t.Logf("%d of %d connections were refused with an answer", refused.Load(), len(open))
	if refused.Load() < 400 {
		t.Errorf("%d requests were refused, all 400 reads have a body", refused.Load())
	}
}

// sampleMemory samples the resident memory of the servers until the test ends. The returned function returns the
// largest values so far, in bytes, by server.
func (c *cluster) sampleMemory(t *testing.T) func() map[string]int64 {
	var mu sync.Mutex
	largest := map[string]int64{}
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range c.servers {
			largest[s.Name] = max(largest[s.Name], s.usage(t).Memory)
		}
	}
	look()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
				look()
			}
		}
	}()
	t.Cleanup(func() { close(end); <-ended })
	return func() map[string]int64 {
		mu.Lock()
		defer mu.Unlock()
		all := map[string]int64{}
		for name, rss := range largest {
			all[name] = rss
		}
		return all
	}
}
