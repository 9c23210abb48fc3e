package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/model"
)

// Calls of agents travel in frames, in both directions over one TLS connection (ALPN protoAgent):
//
//	length uint32 | call uint32 | kind uint8 | body        big endian; length is that of the body
//
// The agent chooses the call's number, and the answer has the same number. Answers come in any order.
const frameHeader = 9

// frameKind is the kind of a frame. A kind below frameAnswer is either frameCancel or the AgentCall of a new call.
type frameKind uint8

const (
	frameCancel  frameKind = 0   // the agent no longer waits for the call
	frameAnswer  frameKind = 128 // the body is the call's answer
	frameProblem frameKind = 129 // the body is an api.Problem, in CBOR
	framePing    frameKind = 130 // only agents send it
	framePong    frameKind = 131
)

type frame struct {
	call uint32
	kind frameKind
	body []byte
}

// frameRefused is the error for a frame that was refused and whose body was skipped.
type frameRefused struct {
	frame
	why error
}

func (e *frameRefused) Error() string { return "a frame was refused: " + e.why.Error() }

// frameConn writes and reads frames. Many goroutines may write at the same time, but only one may read.
type frameConn struct {
	net.Conn
	most int                 // bytes; read refuses a longer body
	take func(n int64) error // reserves room for a body, or returns why it can't; a nil take reserves nothing
	give func(n int64)       // frees the room that take reserved
	// writing has capacity 1 and is full while a goroutine writes. It is no mutex, because the fake time of a test stops
	// while a goroutine waits for a mutex, for example behind a slow peer.
	writing chan struct{}
}

func newFrameConn(c net.Conn, most int) frameConn {
	return frameConn{Conn: c, most: most, writing: make(chan struct{}, 1)}
}

const (
	frameWriteTime = 30 * time.Second // a peer that reads less than framePiece in this time is cut off
	framePiece     = 64 << 10         // bytes written at a time
	frameFirstRoom = 4 << 10          // bytes allocated at first, because the announced length may be false
)

// read returns the next frame. It blocks until the frame has arrived or the read deadline has passed. After a
// *frameRefused, the connection is still usable.
func (c *frameConn) read() (f frame, err error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
		return frame{}, err
	}
	n := int64(binary.BigEndian.Uint32(head[:4]))
	f.call, f.kind = binary.BigEndian.Uint32(head[4:8]), frameKind(head[8])
	switch {
	case n == 0:
		return f, nil
	case n > 8*int64(c.most):
		return frame{}, fmt.Errorf("a frame of %d bytes", n)
	case n > int64(c.most):
		return frame{}, c.pass(f, n, model.Refuse(model.CodeTooLarge, "the call is larger than %d bytes", c.most))
	}
	if c.take != nil {
		if why := c.take(n); why != nil {
			return frame{}, c.pass(f, n, why)
		}
		defer func() {
			if err != nil {
				c.give(n)
			}
		}()
	}
	f.body = make([]byte, min(n, frameFirstRoom))
	for read := 0; ; {
		got, err := io.ReadFull(c.Conn, f.body[read:])
		if err != nil {
			return frame{}, err
		}
		if read += got; int64(read) == n {
			return f, nil
		}
		more := make([]byte, min(n, int64(2*read)))
		copy(more, f.body)
		f.body = more
	}
}

// pass skips the body of a refused frame, and returns a *frameRefused or why the connection failed.
func (c *frameConn) pass(f frame, n int64, why error) error {
	if _, err := io.CopyN(io.Discard, c.Conn, n); err != nil {
		return err
	}
	return &frameRefused{f, why}
}

// write sends a whole frame. It blocks until the frame is sent, or the peer reads less than framePiece in
// frameWriteTime. After an error, the connection can't be used any more.
func (c *frameConn) write(f frame) error {
	c.writing <- struct{}{} // blocks until earlier writers are done, or the connection has failed
	defer func() { <-c.writing }()
	return c.send(f, frameWriteTime)
}

// tryWrite sends an unimportant frame, unless another one is being sent. It blocks for at most limit. If sending fails,
// it closes the connection.
func (c *frameConn) tryWrite(f frame, limit time.Duration) {
	select {
	case c.writing <- struct{}{}:
	default:
		return
	}
	defer func() { <-c.writing }()
	if c.send(f, limit) != nil {
		_ = c.Close() // then the goroutine that reads gets an error
	}
}

func (c *frameConn) send(f frame, limit time.Duration) error {
	if uint64(len(f.body)) > 1<<32-1 {
		return errors.New("a frame of more than 4 GiB")
	}
	packet := make([]byte, frameHeader, frameHeader+len(f.body))
	binary.BigEndian.PutUint32(packet, uint32(len(f.body))) //nolint:gosec // checked above
	binary.BigEndian.PutUint32(packet[4:], f.call)
	packet[8] = byte(f.kind)
	for piece := range slices.Chunk(append(packet, f.body...), framePiece) {
		err := c.SetWriteDeadline(time.Now().Add(limit))
		if err == nil {
			_, err = c.Conn.Write(piece)
		}
		if err != nil {
			return fmt.Errorf("a frame of %d bytes can't be sent: %w", len(f.body), err)
		}
	}
	return nil
}

// agentCodec has the encoder and the decoder of the agents' protocol. Both are safe for concurrent use.
var agentCodec = newAgentCodec()

func newAgentCodec() (c struct {
	enc cbor.EncMode
	dec cbor.DecMode
}) {
	var encoder, decoder error
	c.enc, encoder = cbor.CoreDetEncOptions().EncMode()
	c.dec, decoder = cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, MaxNestedLevels: 32, MaxArrayElements: 131072, MaxMapPairs: 131072,
	}.DecMode()
	if err := errors.Join(encoder, decoder); err != nil {
		panic(fmt.Sprintf("transport: options of the CBOR library: %v", err))
	}
	return c
}

// EncodeCBOR encodes a message of the agents' protocol. Equal values get equal bytes (Core Deterministic Encoding).
func EncodeCBOR(v any) ([]byte, error) { return agentCodec.enc.Marshal(v) }

// DecodeCBOR decodes a message of the agents' protocol. It refuses unknown fields, duplicate keys, tags, indefinite
// lengths, and bytes after the value. It limits the nesting and the number of elements. Code: invalid.
func DecodeCBOR(data []byte, v any) error {
	if err := agentCodec.dec.Unmarshal(data, v); err != nil {
		return model.Refuse(model.CodeInvalid, "the message can't be decoded: %v", err).
			WithHint("compare the versions of the two processes with: outspan version")
	}
	return nil
}
