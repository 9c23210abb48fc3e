package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// floodVariable makes the test program send a flood in place of running tests. Its value is a flooder as JSON.
const floodVariable = "OUTSPAN_E2E_FLOOD"

// flooder sends as many requests as it can, with the certificate of a person, until it gets SIGTERM. Then it prints
// what it got.
type flooder struct {
	Dir         string // the directory of the cluster
	Certificate string
	Addresses   []string // host:port of the servers
	From        string   // the address of the flooder

	config            *tls.Config
	ctx               context.Context
	running           sync.WaitGroup
	answered, refused atomic.Int64
}

// flood is a process that runs a flooder.
type flood struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// flood begins a flood with the certificate of a person, at a lower priority than the servers have.
func (c *cluster) flood(t *testing.T, name string) *flood {
	t.Helper()
	what := flooder{Dir: c.dir, Certificate: "cli-" + name, From: c.agents[0].address}
	for _, s := range c.servers {
		what.Addresses = append(what.Addresses, s.api())
	}
	text, err := json.Marshal(&what)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := &flood{cmd: exec.Command("nice", "-n", "5", self)}
	f.cmd.Env = append(os.Environ(), floodVariable+"="+string(text))
	f.cmd.Stdout, f.cmd.Stderr = &f.out, &f.out
	if err := relatives.Start(f.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.cmd.Process.Kill() })
	return f
}

// stop ends the flood, and returns what the flooder said of it.
func (f *flood) stop(t *testing.T) string {
	t.Helper()
	_ = f.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(patience, func() { _ = f.cmd.Process.Kill() })
	defer timer.Stop()
	if err := relatives.Wait(f.cmd); err != nil {
		t.Errorf("the flood: %v\n%s", err, &f.out)
	}
	return strings.TrimSpace(f.out.String())
}

// runFlood runs the flooder that floodVariable describes, and returns the exit code of the process.
func runFlood(text string) int {
	var f flooder
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		fmt.Println(err)
		return 1
	}
	c := &cluster{dir: f.Dir}
	var err error
	if f.config, err = c.readTLSConfig(f.Certificate); err != nil {
		fmt.Println(err)
		return 1
	}
	var stop context.CancelFunc
	f.ctx, stop = signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for i, address := range f.Addresses {
		f.sendTo(i, address)
	}
	f.running.Wait()
	fmt.Printf("%d answers and %d refusals (429 and 503)\n", f.answered.Load(), f.refused.Load())
	return 0
}

// sendTo begins to flood one server.
func (f *flooder) sendTo(i int, address string) {
	var ids atomic.Int64
	f.many(24, func() (*http.Request, error) {
		return http.NewRequest(http.MethodPost,
			fmt.Sprintf("https://%s/v1/nodes/n1/label?request_id=f%d-%d", address, i, ids.Add(1)),
			strings.NewReader(fmt.Sprintf(`{"labels":{"flood":"%d"}}`, ids.Load())))
	})
	f.many(150, func() (*http.Request, error) {
		return http.NewRequest(http.MethodGet, "https://"+address+"/v1/nodes?index=999999999&wait=20s", http.NoBody)
	})
	f.many(24, func() (*http.Request, error) {
		return http.NewRequest(http.MethodGet, "https://"+address+"/v1/jobs/large", http.NoBody)
	})
	for range 30 {
		f.running.Go(func() { f.neverRead(address) })
	}
	for range 8 {
		f.running.Go(func() { f.connect(address) })
	}
}

// many sends requests from n goroutines, with a connection for each.
func (f *flooder) many(n int, build func() (*http.Request, error)) {
	transport := &http.Transport{DialContext: f.dialer().DialContext, TLSClientConfig: f.config.Clone(),
		MaxIdleConnsPerHost: n, DisableCompression: true}
	client := &http.Client{Transport: transport}
	for range n {
		f.running.Go(func() {
			defer transport.CloseIdleConnections()
			for f.ctx.Err() == nil {
				r, err := build()
				if err != nil {
					return
				}
				r.Header.Set("Content-Type", "application/json")
				resp, err := client.Do(r.WithContext(f.ctx))
				if err != nil {
					f.pause(10 * time.Millisecond) // the servers limit the connections of one identity
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
					f.refused.Add(1)
				} else {
					f.answered.Add(1)
				}
			}
		})
	}
}

func (f *flooder) dialer() *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(f.From)}}
}

func (f *flooder) pause(d time.Duration) {
	select {
	case <-f.ctx.Done():
	case <-time.After(d):
	}
}

// connect opens connections and closes them at once.
func (f *flooder) connect(address string) {
	dialer := &tls.Dialer{NetDialer: f.dialer(), Config: f.config}
	for f.ctx.Err() == nil {
		conn, err := dialer.DialContext(f.ctx, "tcp", address)
		if err != nil {
			f.pause(10 * time.Millisecond)
			continue
		}
		_ = conn.Close()
	}
}

// neverRead asks for a large answer on one connection again and again, and reads nothing.
func (f *flooder) neverRead(address string) {
	config := f.config.Clone()
	config.NextProtos = []string{"http/1.1"}
	for f.ctx.Err() == nil {
		conn, err := (&tls.Dialer{NetDialer: f.dialer(), Config: config}).DialContext(f.ctx, "tcp", address)
		if err != nil {
			f.pause(100 * time.Millisecond)
			continue
		}
		_ = conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = conn.Write(bytes.Repeat([]byte("GET /v1/jobs/large HTTP/1.1\r\nHost: x\r\n\r\n"), 20))
		f.pause(5 * time.Second)
		_ = conn.Close()
	}
}
