package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// exceeded notes the shares that were used up.
type exceeded struct {
	mu    sync.Mutex
	count map[httpapi.Share]int
}

func (e *exceeded) note(s httpapi.Share) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count == nil {
		e.count = map[httpapi.Share]int{}
	}
	e.count[s]++
}

func (e *exceeded) of(s httpapi.Share) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[s]
}

// Three servers don't give a caller three shares: the leader counts the requests that the others forward.
func TestRateOverAllServers(t *testing.T) {
	r := newRig(t, "s1", "s2", "s3")
	r.world()
	r.servers["s1"].api.SetLimits(httpapi.Limits{RequestsPerSecond: 2})
	var err error
	for i := range 20 {
		c := r.cli([]string{"s2", "s3"}[i%2])
		if _, _, err = c.Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil); err != nil {
			break
		}
	}
	wantCode(t, err, model.CodeRateLimited)
	if _, _, err := r.client(pki.RoleCLI, "bob", "s2").Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// One caller may have 200 reads that wait for a change. Its next one is refused; reads that don't wait, and those of
// other callers and of the socket, are served.
func TestWatchesOfOneCaller(t *testing.T) {
	r := newRig(t, "s2")
	r.world()
	var beyond exceeded
	r.startWith("s1", func(c *httpapi.Config) {
		c.Limits, c.Beyond = httpapi.Limits{RequestsPerSecond: 100_000}, beyond.note
	})
	r.setLeader("s1")
	path := t.TempDir() + "/api.sock"
	r.serveOn(must(transport.ListenUnix(path, "s1"))(t), r.servers["s1"].api, nil)
	greedy := r.client(pki.RoleCLI, "greedy")
	ctx, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer leave()
	query := values(fmt.Sprintf("index=%d&wait=50s", r.machine.Current().Index))
	for range 200 {
		waiting.Go(func() {
			for ctx.Err() == nil { // the read below may have taken the last place
				_, _, _ = greedy.Do(ctx, http.MethodGet, "/v1/nodes", query, nil)
			}
		})
	}
	eventually(t, "one watch more is refused", func() bool {
		short := values(fmt.Sprintf("index=%d&wait=1ms", r.machine.Current().Index))
		_, _, err := greedy.Do(t.Context(), http.MethodGet, "/v1/nodes", short, nil)
		return errors.Is(err, &model.Error{Code: model.CodeBusy})
	})
	if n := beyond.of(httpapi.ShareWatches); n == 0 {
		t.Error("the refusal is not counted")
	}
	if _, _, err := greedy.Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil); err != nil {
		t.Errorf("a read that does not wait: %v", err)
	}
	root := must(transport.NewClient(transport.ClientConfig{Addresses: []string{"unix://" + path}}))(t)
	t.Cleanup(root.Close)
	for name, c := range map[string]*transport.Client{"bob": r.client(pki.RoleCLI, "bob"), "the socket": root} {
		short := values(fmt.Sprintf("index=%d&wait=1ms", r.machine.Current().Index))
		if _, _, err := c.Do(t.Context(), http.MethodGet, "/v1/nodes", short, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A caller that does not read its answers gets busy once they fill its share. Others are served. This holds at the
// server that answers, and at one that forwards.
func TestAnswersThatNobodyReads(t *testing.T) {
	for _, asked := range []string{"s1", "s2"} {
		t.Run(asked, func(t *testing.T) {
			r := newRig(t, "s3")
			var beyond exceeded
			for _, name := range []string{"s1", "s2"} {
				r.startWith(name, func(c *httpapi.Config) {
					c.Limits, c.Beyond = httpapi.Limits{RequestsPerSecond: 100_000}, beyond.note
				})
			}
			r.setLeader("s1")
			r.manyNodes(5000)
			address := r.servers[asked].address
			var open []net.Conn
			defer func() {
				for _, c := range open {
					_ = c.Close()
				}
			}()
			for i := 0; beyond.of(httpapi.ShareBytes) == 0; i++ {
				if i == 100 {
					t.Fatal("a caller that reads nothing is never refused")
				}
				open = append(open, r.askAndNotRead(address, "greedy", "/v1/nodes"))
				// The next answer is asked for when the last one is on its way.
				_, _ = bufio.NewReaderSize(open[i], 16).Peek(1)
			}
			_, _, err := r.client(pki.RoleCLI, "greedy", asked).Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil)
			wantCode(t, err, model.CodeBusy)
			_, _, err = r.client(pki.RoleCLI, "bob", asked).Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil)
			must(0, err)(t)
		})
	}
}

// manyNodes registers n nodes whose labels make them large.
func (r *rig) manyNodes(n int) {
	r.t.Helper()
	for i := range n {
		id := model.NodeID(fmt.Sprintf("01X%05d", i))
		r.apply(&fsm.NodeRegister{ID: id, Name: "x" + fmt.Sprint(i), Agent: model.AgentInfo{BootID: "b", Incarnation: "1",
			Address: "127.0.0.1", Warnings: []string{strings.Repeat("w", 900)}}})
	}
}

// askAndNotRead sends a GET over HTTP/1.1 and leaves the answer unread.
func (r *rig) askAndNotRead(address, name, path string) net.Conn {
	r.t.Helper()
	creds := must(r.ca.Credentials(pki.RoleCLI, name))(r.t)
	raw := must(net.Dial("tcp", address))(r.t)
	_ = raw.(*net.TCPConn).SetReadBuffer(4 << 10)
	conn := tls.Client(raw, creds.ClientConfig(pki.RoleServer, reach.ProtoHTTP1))
	must(io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"))(r.t)
	return conn
}

// A user of the socket is served while other callers have all streams open.
func TestSocketHasItsOwnStreams(t *testing.T) {
	r := newRig(t, "s2")
	r.world()
	r.start("s1", httpapi.Limits{Streams: 1, RequestsPerSecond: 100_000})
	path := t.TempDir() + "/api.sock"
	r.serveOn(must(transport.ListenUnix(path, "s1"))(t), r.servers["s1"].api, nil)
	resp := must(r.cli("s1").Open(t.Context(), reach.Request{Path: "/v1/events"}))(t)
	defer resp.Body.Close()
	_, err := r.client(pki.RoleCLI, "bob", "s1").Open(t.Context(), reach.Request{Path: "/v1/events"})
	wantCode(t, err, model.CodeBusy)
	root := must(transport.NewClient(transport.ClientConfig{Addresses: []string{"unix://" + path}}))(t)
	t.Cleanup(root.Close)
	mine, err := root.Open(t.Context(), reach.Request{Path: "/v1/events"})
	if err != nil {
		t.Fatalf("uid %d: %v", os.Getuid(), err)
	}
	mine.Body.Close()
}

// When all streams are open, whoever has most of them loses its newest one to a caller that has fewer. A caller takes
// none from one that has only one more.
func TestStreamsAreShared(t *testing.T) {
	r := newRig(t, "s2")
	r.world()
	r.start("s1", httpapi.Limits{Streams: 8, RequestsPerSecond: 100_000}) // two for each caller
	open := func(name string) (<-chan error, error) {
		resp, err := r.client(pki.RoleCLI, name, "s1").Open(t.Context(), reach.Request{Path: "/v1/events"})
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { resp.Body.Close() })
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, resp.Body)
			ended <- err
		}()
		return ended, nil
	}
	var all []<-chan error
	for i := range 8 {
		all = append(all, must(open(fmt.Sprint("greedy", i/2)))(t))
	}
	quiet := must(open("quiet"))(t)
	eventually(t, "a greedy caller loses a stream", func() bool {
		ended := 0
		for _, one := range all {
			ended += len(one)
		}
		return ended == 1 && len(all[0])+len(all[2])+len(all[4])+len(all[6]) == 0
	})
	if len(quiet) > 0 {
		t.Error("the new stream ended")
	}
	_, err := open("quiet") // the others have two at most, and it would have two
	wantCode(t, err, model.CodeBusy)
}
