package cluster

import (
	"bytes"
	"compress/lzw"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/outspan/outspan/pki"
)

const poolName = "pool"

var poolKey = bytes.Repeat([]byte{7}, 32)

// sealed encrypts a message as memberlist does, for a packet or a stream.
func sealed(t *testing.T, plain []byte, stream bool) []byte {
	t.Helper()
	block, err := aes.NewCipher(poolKey)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	message := append([]byte{kindLabel, byte(len(poolName))}, poolName...)
	named := []byte(poolName)
	if stream {
		head := binary.BigEndian.AppendUint32([]byte{kindEncrypted}, uint32(sealedHead+len(plain)+sealedTail))
		message, named = append(message, head...), slices.Concat(head, named)
	}
	nonce := make([]byte, gcm.NonceSize())
	rand.Read(nonce)
	message = append(append(message, 1), nonce...)
	return gcm.Seal(message, nonce, plain, named)
}

// bomb returns a compressed message that unpacks to size bytes.
func bomb(size int) []byte {
	var packed bytes.Buffer
	w := lzw.NewWriter(&packed, lzw.LSB, 8)
	_, _ = w.Write(make([]byte, size))
	_ = w.Close()
	message := append([]byte{kindCompressed, 0x82, 0xa4}, "Algo"...)
	message = append(append(message, 0, 0xa3), "Buf"...)
	message = binary.BigEndian.AppendUint32(append(message, 0xc6), uint32(packed.Len()))
	return append(message, packed.Bytes()...)
}

// exchange returns only the header of an exchange of members. The header announces a number of members and a number of
// bytes of user state.
func exchange(nodes, user uint32) []byte {
	message := append([]byte{kindPushPull, 0x83, 0xa4}, "Join"...)
	message = append(append(message, 0xc2, 0xa5), "Nodes"...)
	message = binary.BigEndian.AppendUint32(append(message, 0xce), nodes)
	message = append(append(message, 0xac), "UserStateLen"...)
	return binary.BigEndian.AppendUint32(append(message, 0xce), user)
}

func compound(parts ...[]byte) []byte {
	message := []byte{kindCompound, byte(len(parts))}
	for _, p := range parts {
		message = binary.BigEndian.AppendUint16(message, uint16(len(p)))
	}
	return append(message, bytes.Join(parts, nil)...)
}

func summed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kindChecksum}, crc32.ChecksumIEEE(message)), message...)
}

// A holder of the gossip key could send messages that fill a server's memory. Such messages are refused before
// memberlist sees them.
func TestScreen(t *testing.T) {
	s, err := newScreen(poolKey)
	if err != nil {
		t.Fatal(err)
	}
	user := append([]byte{8}, "heartbeat"...)
	for what, c := range map[string]struct {
		packet []byte
		want   error
	}{
		"a message":                        {user, nil},
		"with a checksum":                  {summed(user), nil},
		"several messages":                 {summed(compound(user, user)), nil},
		"a compressed one":                 {bomb(1 << 20), errCompressed},
		"a compressed one with a checksum": {summed(bomb(1 << 20)), errCompressed},
		"a compressed one among several":   {summed(compound(user, bomb(1<<20), user)), errCompressed},
		"several among several":            {compound(compound(bomb(1 << 20))), errNested},
		"nothing":                          {nil, nil},
	} {
		if got := s.packet(sealed(t, c.packet, false)); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("packet with %s: %v, want %v", what, got, c.want)
		}
	}
	members := append(exchange(3, 0), make([]byte, 300)...)
	senseless := append([]byte{kindPushPull, 0x83}, make([]byte, 300)...)
	announced := []byte{kindEncrypted, 1, 0, 0, 0, 1} // announces 16 MiB
	garbage := sealed(t, members, true)
	rand.Read(garbage[len(poolName)+2+streamHead:])
	for what, c := range map[string]struct {
		stream []byte
		want   error
	}{
		"an exchange":                     {sealed(t, members, true), nil},
		"a ping":                          {sealed(t, []byte{kindPing, 0x80}, true), nil},
		"a compressed one":                {sealed(t, bomb(1<<20), true), errCompressed},
		"a million members in 60 bytes":   {sealed(t, exchange(1<<20, 0), true), errTooMany},
		"20 MiB beside the members":       {sealed(t, append(exchange(3, 20<<20), make([]byte, 300)...), true), errTooMany},
		"a message of its user":           {sealed(t, []byte{8, 0x81}, true), errKind},
		"a long ping":                     {sealed(t, make([]byte, smallStream+1), true), errTooMany},
		"another key":                     {garbage, errKind},
		"more than a stream may have":     {append(sealed(t, nil, true)[:len(poolName)+2], announced...), errStreamTooLarge},
		"nothing":                         {sealed(t, nil, true), errCutOff},
		"not encrypted, for memberlist":   {append([]byte{kindPushPull}, members...), nil},
		"an exchange with a wrong header": {sealed(t, senseless, true), errKind},
	} {
		head, whole := headBytes(c.stream)
		if !whole {
			t.Fatalf("%s: the head has more than %d bytes", what, head)
		}
		if got := s.stream(c.stream[:min(head, len(c.stream))]); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("stream with %s: %v, want %v", what, got, c.want)
		}
	}
}

func openTestPool(t *testing.T, name string) *Pool {
	t.Helper()
	meta := Meta{Role: pki.RoleAgent, Name: name}
	p, err := OpenPool(PoolConfig{Name: name, Cluster: poolName, Key: poolKey, Bind: "127.0.0.1", Meta: meta})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Streams that unpack to 40 MiB, and packets that unpack to 8 MiB, cost a pool little memory. A member can still join
// and send a message.
func TestPoolUnpacksNothing(t *testing.T) {
	p := openTestPool(t, "a")
	stream, packet := sealed(t, bomb(40<<20), true), sealed(t, bomb(8<<20), false)
	if len(packet) > packetSize {
		t.Fatalf("a packet of %d bytes", len(packet))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 8 {
		conn, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = conn.Write(stream)
		answer, _ := io.ReadAll(conn) // until the pool closes the connection
		_ = conn.Close()
		if len(answer) > 1024 {
			t.Errorf("an answer of %d bytes", len(answer))
		}
		udp, err := net.Dial("udp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = udp.Write(packet)
		_ = udp.Close()
	}
	b := openTestPool(t, "b")
	if err := b.Join(p.Address()); err != nil {
		t.Errorf("a member can't join: %v", err)
	}
	if err := b.Send("a", []byte("hello")); err != nil { // arrives after the packets, so these were handled by then
		t.Fatal(err)
	}
	select {
	case <-p.Receive():
	case <-time.After(30 * time.Second):
		t.Fatal("a message of a member did not come")
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
		t.Errorf("%d MB were allocated", grown>>20)
	}
}

// A member whose memberlist compresses messages can't join. The error of Join gives the reason.
func TestMemberThatCompresses(t *testing.T) {
	p := openTestPool(t, "a")
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label, c.SecretKey, c.EnableCompression = "old", poolName, poolKey, true
	c.BindAddr, c.BindPort = "127.0.0.1", 0
	c.Logger = log.New(io.Discard, "", 0)
	old, err := memberlist.Create(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Shutdown() })
	if _, err := old.Join([]string{p.Address()}); err == nil || !strings.Contains(err.Error(), errCompressed.Error()) {
		t.Errorf("it joins: %v", err)
	}
}
