package duplex

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Kind says what a frame contains; see the comment of the package.
type Kind uint8

// The kinds of frames.
const (
	KindData Kind = 1 + iota
	KindEnd
	KindWindow
	KindMessage
	KindOpen
	KindReset
)

const (
	// Window is how many bytes of a lane may be under way in one direction.
	Window = 256 << 10
	// MaxFrame is the largest size of a frame without its head.
	MaxFrame = 256 << 10

	headSize = 9
	dataSize = 32 << 10 // of one data frame that this package sends
)

// Frame is one frame of a stream.
type Frame struct {
	Kind Kind
	Lane uint32
	Body []byte
}

// ErrFrame is wrapped by the errors of frames that are not as this package describes them.
var ErrFrame = errors.New("not a frame of this protocol")

// ReadFrame reads one frame. It returns io.EOF at the end between two frames. It allocates no more than has come.
func ReadFrame(r io.Reader) (Frame, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Kind: Kind(head[0]), Lane: binary.BigEndian.Uint32(head[1:])}
	size := binary.BigEndian.Uint32(head[5:])
	if f.Kind < KindData || f.Kind > KindReset || size > MaxFrame {
		return Frame{}, fmt.Errorf("%w: kind %d with %d bytes", ErrFrame, f.Kind, size)
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && len(body) < int(size) {
		err = io.ErrUnexpectedEOF
	}
	f.Body = body
	return f, err
}

// Append appends the encoded frame to b.
func (f Frame) Append(b []byte) []byte {
	b = append(b, byte(f.Kind))
	b = binary.BigEndian.AppendUint32(b, f.Lane)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Body)))
	return append(b, f.Body...)
}

// Message returns a frame with v as JSON. It returns an error if v can't be encoded, or is larger than MaxFrame.
func Message(v any) (Frame, error) {
	body, err := json.Marshal(v)
	if err == nil && len(body) > MaxFrame {
		err = fmt.Errorf("a message of %d bytes is too large, at most %d fit", len(body), MaxFrame)
	}
	return Frame{Kind: KindMessage, Body: body}, err
}
