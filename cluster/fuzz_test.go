package cluster

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// recordedConn is a connection whose other end has already sent everything.
type recordedConn struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (c *recordedConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *recordedConn) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *recordedConn) SetDeadline(time.Time) error { return nil }
func (c *recordedConn) RemoteAddr() net.Addr        { return &net.TCPAddr{} }
func (c *recordedConn) Close() error                { return nil }

// FuzzHello checks that a hello is answered with yes only if it is meant for this server, and its cluster doesn't
// differ from this server's. Every byte after the hello is left to raft.
func FuzzHello(f *testing.F) {
	for _, line := range []string{"outspan-raft/1 c1 s2 s1\nrest", "outspan-raft/1 - s2 s1\n", "outspan-raft/1 c2 s2 s1\n",
		"outspan-raft/1 c1 s2 s3\n", "outspan-raft/2 c1 s2 s1\n", "outspan-raft/1 c1/l1,l2 s2 s1\n",
		"outspan-raft/1 c1/, s2 s1\n", "outspan-raft/1 c1  s1\n", strings.Repeat("x", helloLimit+1), "\n", ""} {
		f.Add([]byte(line), "c1")
		f.Add([]byte(line), "")
	}
	f.Fuzz(func(t *testing.T, data []byte, cluster string) {
		conn := &recordedConn{in: bytes.NewReader(data)}
		replaced := false
		h := &helloLayer{
			self: "s1", history: func() model.History { return model.History{Cluster: cluster} },
			join: func(model.History) error { return nil }, replaced: func(model.History) { replaced = true },
		}
		err := h.meet(conn)
		said := conn.out.String()
		if err != nil {
			if replaced && (cluster == "" || !bytes.Contains(data, []byte(" "+cluster+"/"))) {
				t.Fatalf("%q ended the server of %q", data, cluster)
			}
			if said != "" && said != string(helloNo) {
				t.Fatalf("refused with %v, and said %q", err, said)
			}
			return
		}
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		words := strings.Split(string(line), " ")
		if said != string(helloYes) || len(words) != 4 || words[0] != helloVersion || words[3] != "s1" || cluster != "" &&
			words[1] != cluster && words[1] != cluster+"/" && words[1] != "-" {
			t.Fatalf("the hello %q was taken in cluster %q with %q", line, cluster, said)
		}
		if left, _ := io.ReadAll(conn.in); !bytes.Equal(left, rest) {
			t.Fatalf("%q is left for raft, not %q", left, rest)
		}
	})
}

// FuzzSignedBeat checks what a sender with a node's key can cause. A server may record that the node was heard, and may
// send at most one short answer.
func FuzzSignedBeat(f *testing.F) {
	c := newCodec()
	for _, b := range []beat{{To: "s1", Node: "n1", Epoch: 1, Seq: 1},
		{To: "s1", Node: "n1", Epoch: 9, Seq: 1 << 63}, {}} {
		body, err := c.enc.Marshal(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		o := newOneNode(t)
		msg := append([]byte{kindBeat}, body...)
		o.Receive(append(msg, sign(o.key, msg)...))
		if len(o.sent) > 1 {
			t.Fatalf("%d answers to one beat", len(o.sent))
		}
		for _, answer := range o.sent {
			if len(answer) > maxBeat {
				t.Fatalf("an answer of %d bytes", len(answer))
			}
		}
		if o.Age("n1").Heard && len(o.sent) != 1 {
			t.Fatal("heard and not answered")
		}
	})
}

// FuzzGossipMeta checks that a member's meta is either refused or has a known role. Accepted meta that is short enough
// to be sent is the same after encoding and decoding.
func FuzzGossipMeta(f *testing.F) {
	c := newCodec()
	for _, m := range []Meta{
		{Role: pki.RoleServer, API: "10.0.0.1:7640",
			Server: &ServerMeta{Pledge: []model.ServerID{"a", "b"}, Expect: 3, Fresh: true}},
		{Role: pki.RoleAgent, BootID: "boot", Incarnation: "1", Name: "n1"},
	} {
		good, err := c.encodeMeta(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(good)
	}
	f.Add([]byte{0xbf, 0xff})
	f.Fuzz(func(t *testing.T, buf []byte) {
		m, err := c.decodeMeta(buf)
		if err != nil {
			if diff := cmp.Diff(Meta{}, m); diff != "" && len(buf) <= metaLimit {
				t.Fatalf("refused, and something is left:\n%s", diff)
			}
			return
		}
		if m.Role != pki.RoleServer && m.Role != pki.RoleAgent {
			t.Fatalf("accepted role %q", m.Role)
		}
		again, err := c.encodeMeta(m)
		if err != nil {
			return // too long to be sent
		}
		second, err := c.decodeMeta(again)
		if m.Server != nil {
			m.Server.Version = m.Server.Version[:min(len(m.Server.Version), maxMetaVersion)]
		}
		if err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
		if diff := cmp.Diff(m, second, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("it came back different:\n%s", diff)
		}
	})
}
