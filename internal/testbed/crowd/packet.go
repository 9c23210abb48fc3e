package crowd

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// kind is the type of a gossip message and the message's first byte.
type kind byte

// The message types of memberlist that an agent sends or receives.
const (
	kindPing     kind = 0
	kindIndirect kind = 1
	kindAck      kind = 2
	kindSuspect  kind = 3
	kindAlive    kind = 4
	kindDead     kind = 5
	kindCompound kind = 7
	kindUser     kind = 8
	kindNack     kind = 11
	kindSummed   kind = 12
)

// The framing of a packet around its message.
const (
	labelled   = 244 // first byte of a packet; the length of the label and the label follow
	sealed     = 1   // version of the encryption: AES-GCM, with the label as additional authenticated data
	nonceSize  = 12
	summedSize = 5 // bytes before a message with a checksum: its type and the checksum
)

// versions returns the lowest, the highest and the current version of memberlist's protocol that a member announces,
// and the same three of the delegate's protocol.
func versions() []byte { return []byte{1, 5, 2, 0, 0, 0} }

// probe is a ping, direct or through another member.
type probe struct {
	SeqNo  uint32
	Node   string
	Target []byte `codec:",omitempty"`
	Port   uint16 `codec:",omitempty"`
	Nack   bool   `codec:",omitempty"`
}

type ack struct {
	SeqNo   uint32
	Payload []byte
}

type nack struct{ SeqNo uint32 }

// rumour is the message that a member is suspected or dead.
type rumour struct {
	Incarnation uint32
	Node        string
}

type alive struct {
	Incarnation uint32
	Node        string
	Addr        []byte
	Port        uint16
	Meta        []byte
	Vsn         []byte
}

func encode(k kind, body any) ([]byte, error) {
	buf := bytes.NewBuffer([]byte{byte(k)})
	err := codec.NewEncoder(buf, &codec.MsgpackHandle{}).Encode(body)
	return buf.Bytes(), err
}

func decode(msg []byte, body any) error {
	return codec.NewDecoderBytes(msg[1:], &codec.MsgpackHandle{}).Decode(body)
}

// envelope encrypts and decrypts the packets between the members of one cluster.
type envelope struct {
	label []byte
	gcm   cipher.AEAD
}

func newEnvelope(label string, key []byte) (envelope, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return envelope{}, fmt.Errorf("gossip key: %w", err)
	}
	gcm, err := cipher.NewGCM(block)
	return envelope{[]byte(label), gcm}, err
}

func (e envelope) seal(msg []byte) []byte {
	out := append([]byte{labelled, byte(len(e.label))}, e.label...)
	out = append(out, sealed)
	nonce := make([]byte, nonceSize)
	rand.Read(nonce) // rand.Read never fails: without randomness the runtime aborts the process
	return e.gcm.Seal(append(out, nonce...), nonce, msg, e.label)
}

var errPacket = errors.New("no packet of this cluster")

func (e envelope) open(packet []byte) ([]byte, error) {
	head := 2 + len(e.label)
	if len(packet) < head+1+nonceSize || packet[0] != labelled || !bytes.Equal(packet[2:head], e.label) ||
		packet[head] != sealed {
		return nil, errPacket
	}
	nonce := packet[head+1 : head+1+nonceSize]
	msg, err := e.gcm.Open(nil, nonce, packet[head+1+nonceSize:], e.label)
	if err == nil && len(msg) > summedSize && kind(msg[0]) == kindSummed {
		msg = msg[summedSize:] // skip the checksum: the encryption has authenticated the message
	}
	return msg, err
}

// parts splits a compound message. If the message is damaged, it returns an error and the parts before the damage.
func parts(msg []byte) ([][]byte, error) {
	if len(msg) < 2 || len(msg) < 2+2*int(msg[1]) {
		return nil, errPacket
	}
	var list [][]byte
	rest := msg[2+2*int(msg[1]):]
	for i := range int(msg[1]) {
		n := int(binary.BigEndian.Uint16(msg[2+2*i:]))
		if n > len(rest) {
			return list, errPacket
		}
		list, rest = append(list, rest[:n]), rest[n:]
	}
	return list, nil
}
