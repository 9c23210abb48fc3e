package door

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/ui"
	"github.com/outspan/outspan/model"
)

// passedOn are the headers of a request that reach the API. The identity is that of the session.
var passedOn = [...]string{"Accept", "Content-Type", api.HeaderLastEvent}

// codeNotEntered is the code of the answer to a request without a session.
const codeNotEntered model.Code = "page_not_entered"

// unknownSession says why a server does not know the session of a cookie. It keeps nothing of a session that has ended,
// so it can't tell which reason it was.
var unknownSession = fmt.Sprintf("this server knows your sign-in no longer: the server was restarted, or the sign-in "+
	"ended there, as it does after %d hours without use, after %d in all, when its access token ends or is revoked, and "+
	"when you have more than %d there", idleTime/time.Hour, sessionTime/time.Hour, maxPerSubject)

// sessionHeader names the sign-in for which a tab was loaded. Other tabs of the browser may have signed in anew since.
const sessionHeader = "Outspan-Page-Session"

// pass lets the API answer a request with the access token of the session. The session ends when the API no longer
// takes the token. A stream ends with its session.
func (d *Door) pass(w http.ResponseWriter, r *http.Request) {
	s := d.session(r)
	if s == nil {
		why := "nobody is signed in here" // the browser has no cookie: somebody has signed out, such as in another tab
		if cookie(r, forSession) != "" {
			why = unknownSession
		}
		ui.Refuse(w, http.StatusUnauthorized, model.Refuse(codeNotEntered, "%s", why).WithHint("sign in"))
		return
	}
	if id := r.Header.Get(sessionHeader); id != "" && id != s.id() {
		ui.Refuse(w, http.StatusUnauthorized, model.Refuse(codeNotEntered, "somebody has signed in anew in this browser").
			WithHint("load the page again"))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	out := &watched{ResponseWriter: w}
	d.cfg.API.ServeHTTP(out, asked(ctx, r, s.token))
	if out.status == http.StatusUnauthorized && d.sessions.stop(s) {
		d.recordEnd(s)
	}
}

// asked returns the request to the API: method, path, query, body and a few headers of the page's request, from its
// address, with an access token unless that is empty.
func asked(ctx context.Context, r *http.Request, token string) *http.Request {
	out := r.Clone(ctx)
	out.Header = http.Header{}
	for _, name := range passedOn {
		if value := r.Header.Get(name); value != "" {
			out.Header.Set(name, value)
		}
	}
	if token != "" {
		out.Header.Set("Authorization", "Bearer "+token)
	}
	return out
}

// watched notes the status of an answer.
type watched struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *watched) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the real writer.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// maxAnswer is the largest answer of the API that a sign-in reads, in bytes. The list of rights is the largest part.
const maxAnswer = 4 << 20

// call calls an operation of the API for a request of the page, and decodes the answer into the value of into. Errors:
// those of the API.
func (d *Door) call(ctx context.Context, r *http.Request, token, method, path, query string, in, into any) error {
	one := r.Clone(ctx)
	one.Method, one.URL, one.RequestURI = method, &url.URL{Path: path, RawQuery: query}, ""
	one.Header, one.Body, one.ContentLength = http.Header{}, http.NoBody, 0
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return model.Refuse(model.CodeInternal, "%v", err)
		}
		one.Header.Set("Content-Type", "application/json")
		one.Body, one.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	}
	kept := &kept{header: http.Header{}}
	whole := d.answer(kept, asked(ctx, one, token))
	switch {
	case !whole:
		return model.Refuse(model.CodeNoLeader, "the answer of the servers broke off").WithHint("try again")
	case kept.over:
		return model.Refuse(model.CodeInternal, "the answer of the API is larger than %d bytes", maxAnswer)
	case kept.status != http.StatusOK:
		var p api.Problem
		if err := json.Unmarshal(kept.body.Bytes(), &p); err != nil || p.Code == "" {
			return model.Refuse(model.CodeInternal, "the API answered with %d", kept.status)
		}
		return model.Refuse(p.Code, "%s", p.Message).WithHint("%s", p.Hint)
	}
	if err := json.Unmarshal(kept.body.Bytes(), into); err != nil {
		return model.Refuse(model.CodeInternal, "the answer of the API can't be read: %v", err)
	}
	return nil
}

// answer lets the API answer. It returns false if the answer broke off.
func (d *Door) answer(w http.ResponseWriter, r *http.Request) (whole bool) {
	defer func() {
		reason := recover()
		if err, ok := reason.(error); reason != nil && !(ok && errors.Is(err, http.ErrAbortHandler)) {
			panic(reason)
		}
	}()
	d.cfg.API.ServeHTTP(w, r)
	return true
}

// kept keeps an answer in memory.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
	over   bool
}

// Header implements http.ResponseWriter.
func (k *kept) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *kept) WriteHeader(status int) {
	if k.status == 0 {
		k.status = status
	}
}

var errOver = errors.New("the answer is too large")

// Write implements io.Writer.
func (k *kept) Write(p []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	if k.body.Len()+len(p) > maxAnswer {
		k.over = true
		return 0, errOver
	}
	return k.body.Write(p)
}

// Flush implements http.Flusher.
func (k *kept) Flush() {}
