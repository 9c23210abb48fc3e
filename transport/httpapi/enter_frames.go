package httpapi

import (
	"bytes"
	"errors"
	"io"

	"github.com/outspan/outspan/internal/duplex"
)

func newFrameReader(f duplex.Frame) io.Reader { return bytes.NewReader(f.Append(nil)) }

// copyFrames passes frames on as they come. It stops between two frames, so that another frame can follow. It returns
// nil after a message that ends the stream, and an error if the stream breaks off before.
func copyFrames(to *boundedWriter, from io.Reader) error {
	for {
		f, err := duplex.ReadFrame(from)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = to.writeFrame(f)
		}
		if err != nil {
			return err
		}
	}
}

// writeFrame sends a frame at once.
func (b *boundedWriter) writeFrame(f duplex.Frame) error {
	if _, err := b.Write(f.Append(nil)); err != nil {
		return err
	}
	return b.flush.Flush()
}
