package cluster

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/hashicorp/go-metrics"
)

// screen checks each message before memberlist gets it, and refuses messages that no member sends, for example
// compressed ones. memberlist trusts every message with the right key: it unpacks a compressed message of 30 KiB into
// 40 MiB, and makes room for a million members if a stream of 60 bytes announces them. It also buffers all bytes that a
// stream announces, even if the stream has a wrong key. The screen notices the wrong key, because the first bytes then
// decrypt to nonsense. It is safe for concurrent use.
type screen struct {
	keys atomic.Pointer[[]cipher.Block]
}

// The kinds of memberlist's messages, and the sizes of their headers.
const (
	kindAck        = 2
	kindPushPull   = 6
	kindCompound   = 7
	kindCompressed = 9
	kindEncrypted  = 10
	kindChecksum   = 12
	kindError      = 13
	kindPing       = 0
	kindLabel      = 244

	checksumBytes = 4
	sealedHead    = 1 + 12 // version and nonce
	sealedTail    = 16     // the authentication tag
	streamHead    = 1 + 4  // kind and length
	openedBytes   = 256    // bytes of a stream that are decrypted: its kind and the header of an exchange
	memberBytes   = 32     // each member takes more bytes than that in an exchange
)

var (
	errCompressed = errors.New("it is compressed, which no member does")
	errCutOff     = errors.New("it is cut off")
	errKind       = errors.New("no member sends such a message")
	errNested     = errors.New("no member nests messages so")
	errTooMany    = errors.New("it says that it holds more than it can")
)

func newScreen(keys ...[]byte) (*screen, error) {
	s := new(screen)
	if err := s.use(keys); err != nil {
		return nil, err
	}
	return s, nil
}

func ciphers(keys [][]byte) ([]cipher.Block, error) {
	var blocks []cipher.Block
	for _, key := range keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("gossip key: %w", err)
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

func countRefusedPacket() { metrics.IncrCounter([]string{"memberlist", "udp", "refused"}, 1) }

// packet returns nil if memberlist may get the packet, and otherwise why it is refused. A packet that is not encrypted
// with the key can pass, because memberlist refuses it without unpacking it.
func (s *screen) packet(raw []byte) error {
	raw, ok := withoutLabel(raw)
	if !ok {
		return errCutOff
	}
	return s.each(func(key cipher.Block) error { return screenPacket(open(key, raw, len(raw)-sealedHead-sealedTail)) })
}

// screenPacket checks a packet that was decrypted with one of the keys.
func screenPacket(plain []byte) error {
	if len(plain) > checksumBytes && plain[0] == kindChecksum {
		plain = plain[1+checksumBytes:]
	}
	if len(plain) == 0 {
		return nil
	}
	switch plain[0] {
	case kindCompressed:
		return errCompressed
	case kindCompound:
		return screenParts(plain[1:])
	}
	return nil
}

// screenParts checks the messages inside a compound message. Members never compress them, and never nest compound
// messages.
func screenParts(parts []byte) error {
	if len(parts) == 0 {
		return nil
	}
	count := int(parts[0])
	if len(parts) < 1+2*count {
		return nil // memberlist refuses the whole message
	}
	sizes, rest := parts[1:1+2*count], parts[1+2*count:]
	for i := range count {
		size := int(binary.BigEndian.Uint16(sizes[2*i:]))
		if size > len(rest) {
			return nil // memberlist ignores this part and those after it
		}
		if size > 0 && rest[0] == kindCompressed {
			return errCompressed
		}
		if size > 0 && rest[0] == kindCompound {
			return errNested
		}
		rest = rest[size:]
	}
	return nil
}

// open decrypts the beginning of a sealed message with a key, up to the given number of bytes. It does not authenticate
// the message, which memberlist does later. AES-GCM encrypts like AES-CTR, if the nonce is followed by a counter of
// four bytes that starts at 2.
func open(key cipher.Block, sealed []byte, most int) []byte {
	if len(sealed) <= sealedHead || most <= 0 {
		return nil
	}
	text := sealed[sealedHead:]
	text = text[:min(len(text), most)]
	counter := append(make([]byte, 0, aes.BlockSize), sealed[1:sealedHead]...)
	counter = binary.BigEndian.AppendUint32(counter, 2)
	plain := make([]byte, len(text))
	cipher.NewCTR(key, counter).XORKeyStream(plain, text)
	return plain
}

// withoutLabel removes the name of the pool, which precedes an encrypted message. ok is false if the name is
// incomplete.
func withoutLabel(raw []byte) (rest []byte, ok bool) {
	if len(raw) == 0 || raw[0] != kindLabel {
		return raw, true
	}
	if len(raw) < 2 || len(raw) < 2+int(raw[1]) {
		return nil, false
	}
	return raw[2+int(raw[1]):], true
}

// headBytes returns how many bytes at the beginning of a stream the screen must see. raw contains the bytes that were
// read so far. If whole is false, they are too few to know that, and n bytes are needed first.
func headBytes(raw []byte) (n int, whole bool) {
	labelled := 0
	if len(raw) > 0 && raw[0] == kindLabel {
		if len(raw) < 2 {
			return 2, false
		}
		labelled = 2 + int(raw[1])
	}
	n = labelled + streamHead
	if len(raw) < n {
		return n, false
	}
	if raw[labelled] != kindEncrypted {
		return n, true
	}
	sealed := int64(binary.BigEndian.Uint32(raw[labelled+1:]))
	return n + int(min(sealed, sealedHead+openedBytes)), true
}

// stream returns nil if memberlist may get a stream that begins with the bytes in head, and otherwise why the stream is
// refused.
func (s *screen) stream(head []byte) error {
	head, ok := withoutLabel(head)
	if !ok || len(head) < streamHead {
		return errCutOff
	}
	if head[0] != kindEncrypted {
		return nil // memberlist refuses a stream that is not encrypted
	}
	sealed := int64(binary.BigEndian.Uint32(head[1:]))
	size := sealed - sealedHead - sealedTail
	if sealed > maxStreamBytes {
		return errStreamTooLarge
	}
	return s.each(func(key cipher.Block) error {
		return screenStream(open(key, head[streamHead:], int(min(size, openedBytes))), size)
	})
}

// screenStream checks the beginning of a stream that was decrypted with one of the keys. size is the announced length
// of the whole message.
func screenStream(plain []byte, size int64) error {
	if len(plain) == 0 {
		return errCutOff
	}
	switch plain[0] {
	case kindPing, kindAck, kindError:
		if size > smallStream {
			return errTooMany
		}
		return nil
	case kindPushPull:
		return screenExchange(plain[1:], size)
	case kindCompressed:
		return errCompressed
	}
	return errKind
}

// screenExchange checks the header of an exchange of members. size is the announced length of the whole message.
// Members add no user state to an exchange, and each of them knows at least itself.
func screenExchange(plain []byte, size int64) error {
	header, ok := decodeHeader(plain)
	switch {
	case !ok || header["Nodes"] < 1:
		return errKind
	case header["Nodes"] > uint64(size/memberBytes) || header["UserStateLen"] != 0: //nolint:gosec // size is not negative
		return errTooMany
	}
	return nil
}

// decodeHeader reads the MessagePack map with which an exchange begins. It has three short strings as keys, with
// numbers or booleans as values. ok is false for anything else.
func decodeHeader(b []byte) (header map[string]uint64, ok bool) {
	const threePairs, shortText = 0x83, 0xa0
	if len(b) == 0 || b[0] != threePairs {
		return nil, false
	}
	header, b = map[string]uint64{}, b[1:]
	for range 3 {
		if len(b) == 0 || b[0]&^0x1f != shortText || len(b) < 2+int(b[0]&0x1f) {
			return nil, false
		}
		size := 1 + int(b[0]&0x1f)
		name := string(b[1:size])
		if header[name], b, ok = decodeNumber(b[size:]); !ok {
			return nil, false
		}
	}
	return header, true
}

// decodeNumber reads a number or a boolean in MessagePack. It returns true as 1 and false as 0. ok is false for any
// other value. b must not be empty.
func decodeNumber(b []byte) (value uint64, rest []byte, ok bool) {
	const (
		small   = 0x7f // a byte up to this value is the number itself
		falsity = 0xc2
		truth   = 0xc3
	)
	width := 0
	switch first := b[0]; {
	case first <= small:
		return uint64(first), b[1:], true
	case first == falsity, first == truth:
		return uint64(first - falsity), b[1:], true
	case first >= 0xcc && first <= 0xcf: // unsigned, of 1, 2, 4 or 8 bytes
		width = 1 << (first - 0xcc)
	case first >= 0xd0 && first <= 0xd3: // signed, of 1, 2, 4 or 8 bytes
		width = 1 << (first - 0xd0)
	}
	if width == 0 || len(b) < 1+width {
		return 0, nil, false
	}
	for _, one := range b[1 : 1+width] {
		value = value<<8 | uint64(one)
	}
	return value, b[1+width:], true
}

// screenedStream is a stream whose head must pass the screen before memberlist gets any of its bytes. Only one
// goroutine may read it at a time.
type screenedStream struct {
	net.Conn
	screen *screen
	seen   bool
	head   []byte // bytes read from Conn and not yet returned by Read
	why    error  // why the stream did not pass
}

// Read implements net.Conn.
func (c *screenedStream) Read(b []byte) (int, error) {
	if !c.seen {
		c.seen = true
		c.head, c.why = c.look()
	}
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	if c.why != nil {
		return 0, c.why
	}
	return c.Conn.Read(b)
}

// look reads the head of the stream and screens it. If the stream is refused, look returns only the name of the pool,
// because memberlist must read the name before it can report the reason to the sender.
func (c *screenedStream) look() (head []byte, why error) {
	head = make([]byte, 0, 2+255+streamHead+sealedHead+openedBytes)
	for {
		n, whole := headBytes(head)
		if whole && len(head) >= n {
			break
		}
		got, err := c.Conn.Read(head[len(head):n])
		head = head[:len(head)+got]
		if err != nil && got == 0 {
			return nil, err
		}
	}
	if err := c.screen.stream(head); err != nil {
		countRefusedStream()
		rest, _ := withoutLabel(head)
		return head[:len(head)-len(rest)], fmt.Errorf("a gossip stream is refused: %w", err)
	}
	return head, nil
}
