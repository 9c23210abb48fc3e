package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// passedOn are the headers of a request that are forwarded to the leader.
var passedOn = [...]string{"Accept", "Content-Type", api.HeaderLastEvent}

// passedBack are the headers of the leader's answer that are sent to the caller.
var passedBack = [...]string{"Content-Type", "Allow", "Retry-After", api.HeaderIndex, api.HeaderLeader,
	api.HeaderStale, "Content-Disposition"}

// forward sends a request to the leader once, with the caller's identity, and sends the answer to the caller.
func (s *Server) forward(leader transport.ServerInfo, who caller, rt route, w http.ResponseWriter, r *http.Request) {
	req, err := forwarded(r.Context(), leader.APIAddress, who, r)
	if err != nil {
		writeError(w, model.Refuse(model.CodeNoLeader, "the leader's address %q is not usable", clip(leader.APIAddress)))
		return
	}
	if s.cfg.PeerTransport == nil {
		writeError(w, noLeader())
		return
	}
	resp, err := s.cfg.PeerTransport.RoundTrip(req)
	if err != nil {
		if r.Context().Err() == nil { // otherwise the caller has gone
			s.log.Warn("can't forward to the leader", "leader", leader.Name, "address", leader.APIAddress, "error", err)
		}
		writeError(w, forwardFailed(rt, leader, err))
		return
	}
	defer resp.Body.Close()
	noteFrom(r.Context()).take(resp.Header.Get(headerNote))
	if resp.ContentLength > mostPassed { // up to 4 MiB of it are in memory, whether the caller reads them or not
		free, err := s.takeAnswer(who.Subject, resp.ContentLength)
		if err != nil {
			writeError(w, err)
			return
		}
		defer free()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime(resp.ContentLength)))
	}
	body := io.Reader(resp.Body)
	if 0 <= resp.ContentLength && resp.ContentLength <= mostPassed { // read first, so that a failure can be answered
		whole, err := io.ReadAll(body)
		if err != nil {
			writeError(w, forwardFailed(rt, leader, err))
			return
		}
		body = bytes.NewReader(whole)
	}
	if rt.write && rt.tag == "auth" && resp.StatusCode == http.StatusOK {
		reached(r.Context(), s.cfg.Store, resp.Header.Get(api.HeaderIndex))
	}
	for _, name := range passedBack {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(resp.StatusCode)
	if err := copyFlushed(w, body, resp.ContentLength); err != nil {
		panic(http.ErrAbortHandler) // so that the caller does not mistake this for the end of the answer
	}
}

// applyWait is how long the answer to a change of tokens or rights waits until this server has applied the change.
const applyWait = 2 * time.Second

// reached waits until this server has applied the entry of an answer of the leader, at most applyWait. Whoever has made
// an access token here can then use it here.
func reached(ctx context.Context, store Store, index string) {
	want, err := strconv.ParseUint(index, 10, 64)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, applyWait)
	defer cancel()
	for {
		state, changed := store.Watch()
		if state.Index >= want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func forwarded(ctx context.Context, address string, who caller, r *http.Request) (*http.Request, error) {
	target := url.URL{Scheme: "https", Host: address, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	req, err := http.NewRequestWithContext(ctx, r.Method, target.String(), r.Body)
	if err != nil {
		return nil, err
	}
	req.ContentLength = r.ContentLength
	for _, name := range passedOn {
		if v := r.Header.Get(name); v != "" {
			req.Header.Set(name, v)
		}
	}
	if who.Kind != "" { // otherwise the request proves nothing, and the operation is open
		req.Header.Set(headerForwarded, who.forwardedFor())
	}
	if who.token != "" {
		req.Header.Set(headerForwardedToken, string(who.token))
	}
	return req, nil
}

// forwardFailed returns an error with the code unknown for a write that may have had an effect, and with the code
// no_leader for any other request.
func forwardFailed(rt route, leader transport.ServerInfo, err error) error {
	dial, ok := errors.AsType[*net.OpError](err)
	_, refused := errors.AsType[*model.Error](err) // a certificate was refused before the request was sent
	if rt.write && !refused && !(ok && dial.Op == "dial") {
		return unknownOutcome()
	}
	return leaderSilent(leader)
}

func leaderSilent(leader transport.ServerInfo) *model.Error {
	return model.Refuse(model.CodeNoLeader, "the leader %s does not answer", leader.Name).
		WithHint("%s", withoutLeader)
}

// mostPassed limits how many bytes of an answer are read before they are sent to the caller.
const mostPassed = 32 << 10

// copyFlushed copies bytes as they arrive. length is their number, or -1 if it is not known.
func copyFlushed(w http.ResponseWriter, from io.Reader, length int64) error {
	size := length + 1 // at least 1, even for an empty answer
	if length < 0 || size > mostPassed {
		size = mostPassed
	}
	flush := http.NewResponseController(w)
	buf := make([]byte, size)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if ferr := flush.Flush(); ferr != nil {
				return ferr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
