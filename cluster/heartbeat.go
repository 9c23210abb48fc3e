package cluster

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/outspan/outspan/model"
)

// HeartbeatInterval returns H, the time between an agent's heartbeats to a server: a sixth of offlineAfter, but at
// least 300 ms and at most 10 s.
func HeartbeatInterval(offlineAfter model.Duration) time.Duration {
	return min(max(time.Duration(offlineAfter)*time.Millisecond/6, 300*time.Millisecond), 10*time.Second)
}

// beat is one heartbeat of an agent to one server.
type beat struct {
	To          model.ServerID `cbor:"1,keyasint"`
	Node        model.NodeID   `cbor:"2,keyasint"`
	Epoch       uint64         `cbor:"3,keyasint"` // of the registration whose key signs this beat
	Seq         uint64         `cbor:"4,keyasint"` // grows within an epoch
	Echo        uint64         `cbor:"5,keyasint"` // must be the random number of the server's process
	BootID      string         `cbor:"6,keyasint"`
	Incarnation string         `cbor:"7,keyasint"`
	// Facts is the generation of the node's facts within the epoch; 0 means that the agent has no facts.
	Facts uint64 `cbor:"8,keyasint,omitempty"`
	// Unanswered is the time in milliseconds since a server last answered a request of the agent. It is 0 if no server
	// ever did.
	Unanswered uint32 `cbor:"10,keyasint,omitempty"`
	// Address is the host:port of the agent's gossip, to which the server sends the answer. If it is empty, the server
	// looks up the agent's address in its own gossip.
	Address string `cbor:"9,keyasint,omitempty"`
	// What the machine uses: CPU in thousandths of a core plus 1, and memory in MiB plus 1. 0 means that it is not known.
	// Older servers ignore both.
	CPU    uint32 `cbor:"11,keyasint,omitempty"`
	Memory uint32 `cbor:"12,keyasint,omitempty"`
}

type beatAnswer struct {
	From    model.ServerID `cbor:"1,keyasint"`
	Node    model.NodeID   `cbor:"2,keyasint"`
	Epoch   uint64         `cbor:"3,keyasint"`
	Seq     uint64         `cbor:"4,keyasint"` // of the beat
	Echo    uint64         `cbor:"5,keyasint"` // the number that the next beats must carry
	Verdict verdict        `cbor:"6,keyasint"`

	electorate
}

// electorate names the voters of the newest committed raft configuration that a server knows. The agent uses the newest
// configuration in the answers of all servers. Only answers of the voters in it renew a lease. A server's own claim to
// be a voter proves nothing, because the server may have been removed while it was unreachable.
type electorate struct {
	History string           `cbor:"9,keyasint,omitempty"`  // the server's model.History as a string
	Index   uint64           `cbor:"10,keyasint,omitempty"` // of the configuration; 0 if the server knows none yet
	Voters  []model.ServerID `cbor:"11,keyasint,omitempty"`
}

// verdict says what a server did with a beat.
type verdict uint8

const (
	verdictHeard verdict = 1 // the beat counts for the node's age and renews the node's lease
	verdictEcho  verdict = 2 // the beat was ignored; the agent must send another one with the answer's Echo
	// The beat counts for the node's age but renews no lease, because its epoch is given up or offline. The agent must
	// register again.
	verdictGivenUp verdict = 3
)

// The first byte of a message is its kind. The kind is signed too, so an answer can't be passed off as a beat.
const (
	kindBeat   = 'B'
	kindAnswer = 'A'
)

const macSize = sha256.Size

// maxBeat is the largest message, in bytes, that open accepts.
const maxBeat = 1024

var (
	errBeatFormat = errors.New("heartbeat: malformed")
	errBeatKey    = errors.New("heartbeat: wrong key")
)

func (c codec) seal(kind byte, body any, key []byte) ([]byte, error) {
	buf, err := c.enc.Marshal(body)
	if err != nil {
		return nil, err
	}
	msg := append([]byte{kind}, buf...)
	return append(msg, sign(key, msg)...), nil
}

// open decodes msg into body, gets the key from the function key, and checks the signature. The function may read body,
// but body is not authenticated until open has returned nil.
func (c codec) open(msg []byte, kind byte, body any, key func() ([]byte, bool)) error {
	if len(msg) < 1+macSize || len(msg) > maxBeat || msg[0] != kind {
		return errBeatFormat
	}
	signed, mac := msg[:len(msg)-macSize], msg[len(msg)-macSize:]
	if err := c.dec.Unmarshal(signed[1:], body); err != nil {
		return errBeatFormat
	}
	k, ok := key()
	if !ok || len(k) == 0 || !hmac.Equal(mac, sign(k, signed)) {
		return errBeatKey
	}
	return nil
}

func sign(key, msg []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(msg)
	return h.Sum(nil)
}
