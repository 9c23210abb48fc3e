package ui

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

const (
	secretHeader = "Outspan-Page-Secret"
	maxBody      = 4 << 20          // bytes of a request
	writeBound   = 30 * time.Second // for one write of an answer
)

// pass sends a request to the servers, and their answer to the page.
func (s *Server) pass(w http.ResponseWriter, r *http.Request) {
	if !s.entry.knows(r.Header.Get(secretHeader)) {
		Refuse(w, http.StatusUnauthorized, notEntered("this page has no access, or it is of an earlier outspan ui"))
		return
	}
	s.touch()
	asked, err := forwarded(w, r)
	if err != nil {
		Refuse(w, 0, err)
		return
	}
	answer, err := s.cfg.Forward(r.Context(), asked)
	if err != nil {
		if r.Context().Err() != nil { // the page ends, or the browser has gone
			panic(http.ErrAbortHandler)
		}
		Refuse(w, 0, err)
		return
	}
	defer answer.Body.Close()
	for _, name := range [...]string{"Content-Type", api.HeaderIndex, api.HeaderLeader, api.HeaderStale} {
		if value := answer.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(answer.StatusCode)
	stream(w, answer.Body)
}

// forwarded returns the request to the servers. Its method, path, query, body, and Accept if that asks for
// lines, are the page's; nothing else is.
func forwarded(w http.ResponseWriter, r *http.Request) (client.ForwardedRequest, error) {
	asked := client.ForwardedRequest{Method: r.Method, Path: r.URL.EscapedPath(), Header: http.Header{}}
	if slices.ContainsFunc(strings.Split(r.URL.Path, "/"), func(part string) bool { return part == "." || part == ".." }) {
		return asked, model.Refuse(model.CodeInvalid, "the path %q leads elsewhere", model.Clip(r.URL.Path))
	}
	var err error
	if asked.Query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return asked, model.Refuse(model.CodeInvalid, "the query can't be read")
	}
	if accept := r.Header.Get("Accept"); accept == "application/x-ndjson" {
		asked.Header.Set("Accept", accept)
	}
	if r.Method == http.MethodGet {
		return asked, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return asked, model.Refuse(model.CodeTooLarge, "the request is larger than %d bytes", maxBody)
	} else if err != nil {
		return asked, model.Refuse(model.CodeInvalid, "the request broke off")
	}
	if len(body) > 0 {
		asked.Body = body
	}
	return asked, nil
}

// stream copies an answer as it arrives. It ends when the browser does not take a part in time. It breaks the
// connection off if the answer breaks off, so that the browser does not take a part for the whole.
func stream(w http.ResponseWriter, from io.Reader) {
	to := http.NewResponseController(w)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			// An error of the deadline or of flushing shows in the next write.
			_ = to.SetWriteDeadline(time.Now().Add(writeBound))
			if _, gone := w.Write(buffer[:n]); gone != nil {
				return
			}
			_ = to.Flush()
		}
		switch err {
		case nil:
		case io.EOF:
			return
		default:
			panic(http.ErrAbortHandler)
		}
	}
}
