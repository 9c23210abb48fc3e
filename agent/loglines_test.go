package agent

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// textLog is a log in memory that counts how often it is read.
type textLog struct {
	text  string
	at    int
	reads int
}

func (l *textLog) Read(b []byte) (int, error) {
	l.reads++
	if l.at == len(l.text) {
		return 0, io.EOF
	}
	n := copy(b, l.text[l.at:])
	l.at += n
	return n, nil
}

func (l *textLog) Close() error                { return nil }
func (l *textLog) Offset() int64               { return int64(l.at) }
func (l *textLog) WrittenAt(n int64) time.Time { return time.Unix(n, 0) }

// A stream that has nothing is read as often as the other one, and not for each of the other's lines.
func TestReadsOfAnEmptyStream(t *testing.T) {
	many := strings.Repeat("a line of a log\n", 100_000) + strings.Repeat("x", maxLine+10) + "\nno end"
	full, empty := &textLog{text: many}, &textLog{}
	answer := httptest.NewRecorder()
	out := &lineWriter{w: answer, control: http.NewResponseController(answer)}
	m := newLineMerge([]Log{full, empty}, logQuery{tail: -1}, out, func() bool { return true })
	if !m.run(context.Background()) || answer.Body.String() != many {
		t.Errorf("got %d bytes, want %d", answer.Body.Len(), len(many))
	}
	if empty.reads > 2*full.reads {
		t.Errorf("the empty stream was read %d times, the other one %d times", empty.reads, full.reads)
	}
}
