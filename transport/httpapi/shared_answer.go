package httpapi

import (
	"net/http"
	"time"

	"github.com/outspan/outspan/model"
)

const (
	answersOfOne = 32 << 20  // bytes of answers that one subject has not read yet
	answersInAll = 256 << 20 // bytes of all answers that are not read yet

	smallAnswer = 64 << 10 // bytes; a smaller answer fits into the buffers of the connection
	slowestRead = 32 << 10 // bytes a second with which a larger answer must be read
)

// answerTime returns how long a reader has for an answer of n bytes.
func answerTime(n int64) time.Duration {
	return writeBound + time.Duration(n/slowestRead)*time.Second
}

// takeAnswer counts the bytes of an answer against the share of its reader, until free is called. An answer that is
// larger than a whole share counts as one share. Code: busy.
func (s *Server) takeAnswer(who model.Subject, n int64) (free func(), err error) {
	n = min(n, answersOfOne)
	if s.answers.Take(who, n) != nil {
		return nil, model.Refuse(model.CodeBusy, "%s has not read its other answers: its share is %d MiB, and all "+
			"callers together have %d MiB on this server", who, answersOfOne>>20, answersInAll>>20).
			WithHint("read the answers that are open, or ask for less with limit, filter or fields")
	}
	return func() { s.answers.Give(who, n) }, nil
}

// answerWriter sends the answer of one request that is not a stream. When the first bytes of the answer come, the turn
// of the request ends. The bytes count against the share of the reader until they are sent. If there is no room for
// them, the answer is the problem busy instead.
type answerWriter struct {
	http.ResponseWriter
	s     *Server
	who   model.Subject
	work  *work
	whole bool // the answer is written at once

	status  int // not sent yet; 0 if it is sent, or not known
	sent    bool
	refused bool
}

// WriteHeader implements http.ResponseWriter. The status is sent with the first bytes.
func (w *answerWriter) WriteHeader(status int) {
	if !w.sent {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *answerWriter) Write(p []byte) (int, error) {
	w.work.end()
	if w.refused {
		return len(p), nil
	}
	n := int64(len(p))
	free, err := w.s.takeAnswer(w.who, n)
	if err != nil && w.sent {
		return 0, err
	}
	if err != nil {
		w.refused, w.sent = true, true
		writeError(w.ResponseWriter, err)
		return len(p), nil
	}
	defer free()
	if n > smallAnswer { // otherwise an answer that nobody reads would stay in memory for ever
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTime(n)))
	}
	if !w.sent && w.whole { // tells a server that forwards the answer its size
		w.Header().Set("Content-Length", decimal(uint64(n)))
	}
	w.send()
	return w.ResponseWriter.Write(p)
}

// send sends the status, unless it is sent already or was never set.
func (w *answerWriter) send() {
	if !w.sent && w.status != 0 {
		w.ResponseWriter.WriteHeader(w.status)
	}
	w.sent = true
}

// Unwrap lets http.ResponseController find the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// inShares returns a handler that computes an answer within the shares of the caller. The handler of an operation with
// typed input waits for its turn itself, once it knows what it needs.
func (s *Server) inShares(rt route, who caller, next http.Handler) http.Handler {
	if rt.stream || who.Kind == model.SubjectServer {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := &work{turns: s.turns, who: who.Subject}
		defer turn.end()
		if !rt.typed {
			if err := turn.begin(r.Context()); err != nil {
				writeError(w, err)
				return
			}
		}
		answer := &answerWriter{ResponseWriter: w, s: s, who: who.Subject, work: turn, whole: rt.typed}
		next.ServeHTTP(answer, r.WithContext(withWork(r.Context(), turn)))
		answer.send()
	})
}
