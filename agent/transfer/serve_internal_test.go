package transfer

import (
	"net/http/httptest"
	"testing"
	"time"
)

// patient counts the bytes that are written under each write deadline.
type patient struct {
	*httptest.ResponseRecorder
	under []int
}

// SetWriteDeadline is what http.ResponseController calls.
func (p *patient) SetWriteDeadline(time.Time) error {
	p.under = append(p.under, 0)
	return nil
}

// Write implements io.Writer.
func (p *patient) Write(data []byte) (int, error) {
	p.under[len(p.under)-1] += len(data)
	return p.ResponseRecorder.Write(data)
}

// A slow reader is cut off by the time for one piece, not by the time for a whole chunk.
func TestChunksAreSentInPieces(t *testing.T) {
	w := &patient{ResponseRecorder: httptest.NewRecorder()}
	if !send(w, make([]byte, chunkBytes)) || w.Body.Len() != chunkBytes {
		t.Fatalf("%d of %d bytes were sent", w.Body.Len(), chunkBytes)
	}
	for _, n := range w.under {
		if n > sendPiece {
			t.Errorf("%d bytes have one deadline, want at most %d", n, sendPiece)
		}
	}
}
