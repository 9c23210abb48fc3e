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
	Epoch       uint64         `cbor:"3,keyasint"` // of the registration whose key signs
	Seq         uint64         `cbor:"4,keyasint"` // grows within an epoch
	Echo        uint64         `cbor:"5,keyasint"` // the number the server's process drew; a beat without it doesn't count
	BootID      string         `cbor:"6,keyasint"`
	Incarnation string         `cbor:"7,keyasint"`
	// Facts is the generation of the node's facts within the epoch; 0: the agent has none.
	Facts uint64 `cbor:"8,keyasint,omitempty"`
	// Unanswered is the time in milliseconds since a server last answered a request of the agent.
	Unanswered uint32 `cbor:"10,keyasint,omitempty"`
	// Address is the host:port of the agent's gossip. If it is empty, the server takes the address that its own gossip
	// has.
	Address string `cbor:"9,keyasint,omitempty"`
}

// beatAnswer is the server's answer to a beat.
type beatAnswer struct {
	From    model.ServerID `cbor:"1,keyasint"`
	Node    model.NodeID   `cbor:"2,keyasint"`
	Epoch   uint64         `cbor:"3,keyasint"`
	Seq     uint64         `cbor:"4,keyasint"` // of the beat
	Echo    uint64         `cbor:"5,keyasint"` // for the next beats
	Verdict verdict        `cbor:"6,keyasint"`

	electorate
}

// electorate is the newest committed configuration that a server knows, and the history that it belongs to. A server's
// answer counts for a lease only if that server is a voter of the newest configuration that the agent heard of. A
// server that was removed while it was away still counts itself as a voter. A server that has just started may know no
// configuration; then Index is 0.
type electorate struct {
	History string           `cbor:"9,keyasint,omitempty"` // model.History as text
	Index   uint64           `cbor:"10,keyasint,omitempty"`
	Voters  []model.ServerID `cbor:"11,keyasint,omitempty"`
}

// verdict says whether a beat was taken.
type verdict uint8

const (
	verdictHeard   verdict = 1 // counts, for the node's age and for its lease
	verdictEcho    verdict = 2 // send again with this echo
	verdictGivenUp verdict = 3 // this server agreed that the epoch is offline: register again
)

// The first byte of a message is its kind. It is signed too, so an answer can't be passed off as a beat.
const (
	kindBeat   = 'B'
	kindAnswer = 'A'
)

const macSize = sha256.Size

// maxBeat bounds the size of what is decoded.
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

// open decodes body, finds the key for it and checks the signature. Only the key function may use body before open has
// returned nil.
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
