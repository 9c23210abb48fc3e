package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Bounds of saving or restoring a snapshot.
const (
	snapshotLimit = 10 * time.Minute
	maxSnapshot   = 4 << 30 // bytes
)

const contentTypeSnapshot = "application/octet-stream"

func (s *Server) snapshotOperations() []operation {
	save := getRoute("save-snapshot", "/v1/snapshot", "snapshot", "Save the whole state")
	save.allow, save.run, save.stream = forCLI, runRead, true
	restore := route{
		id: "restore-snapshot", method: http.MethodPut, path: "/v1/snapshot", tag: "snapshot",
		summary: "Replace the whole state by a saved one",
		allow:   forCLI, run: runLeader, stream: true, write: true,
	}
	return []operation{
		plain(save,
			document{answer: contentTypeSnapshot, params: params(queryParam("consistency", "default, consistent or stale"))},
			http.HandlerFunc(s.saveSnapshot)),
		plain(restore, document{body: contentTypeSnapshot, answer: contentTypeJSON, schema: api.Written{}},
			http.HandlerFunc(s.restoreSnapshot)),
	}
}

func (s *Server) saveSnapshot(w http.ResponseWriter, r *http.Request) {
	release, err := s.snapshots.take(callerFrom(r.Context()).Subject)
	if err != nil {
		writeError(w, err)
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), snapshotLimit)
	defer cancel()
	err = checkQuery(r, "consistency")
	asked := consistency(r.URL.Query().Get("consistency"))
	if err == nil && !slices.Contains([]consistency{"", readDefault, readConsistent, readStale}, asked) {
		err = model.Refuse(model.CodeInvalid, "consistency: %q is none of default, consistent and stale", clip(string(asked)))
	}
	if err == nil && s.cfg.Servers.Snapshots == nil {
		err = notOffered("snapshots")
	}
	if err != nil {
		writeError(w, err)
		return
	}
	state, _ := s.cfg.Store.Watch()
	out := &startedWriter{w: w, start: func() {
		w.Header().Set("Content-Type", contentTypeSnapshot)
		w.Header().Set("Content-Disposition", `attachment; filename="outspan-`+decimal(state.Index)+`.snap"`)
		w.Header().Set(api.HeaderIndex, decimal(state.Index))
	}}
	save := func() error { return s.cfg.Servers.Snapshots.Save(ctx, out) }
	if asked == readStale {
		save = func() error { return s.cfg.Servers.Snapshots.SaveStale(out) }
	}
	if err := save(); err != nil {
		s.log.Warn("can't save a snapshot", "error", err)
		if !out.started {
			writeError(w, err)
			return
		}
		panic(http.ErrAbortHandler) // breaks the connection, so that the caller can see that the answer is cut off
	}
}

// startedWriter calls start before it writes the first byte. As long as started is false, an error can still be sent as
// a problem.
type startedWriter struct {
	w       io.Writer
	start   func()
	started bool
}

// Write implements io.Writer.
func (w *startedWriter) Write(p []byte) (int, error) {
	if !w.started {
		w.started = true
		w.start()
	}
	return w.w.Write(p)
}

func (s *Server) restoreSnapshot(w http.ResponseWriter, r *http.Request) {
	release, err := s.snapshots.take(callerFrom(r.Context()).Subject)
	if err != nil {
		writeError(w, err)
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), snapshotLimit)
	defer cancel()
	if s.cfg.Servers.Snapshots == nil {
		writeError(w, notOffered("snapshots"))
		return
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(snapshotLimit)); err != nil {
		writeError(w, model.Refuse(model.CodeInternal, "the time for a snapshot can't be bounded: %v", err))
		return
	}
	in := http.MaxBytesReader(w, r.Body, maxSnapshot)
	if err := s.cfg.Servers.Snapshots.Restore(ctx, in); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			err = model.Refuse(model.CodeTooLarge, "the snapshot is larger than %d bytes", int64(maxSnapshot))
		}
		writeError(w, err)
		return
	}
	s.log.Info("a snapshot was restored", "actor", callerFrom(ctx).Actor())
	state, _ := s.cfg.Store.Watch()
	w.Header().Set(api.HeaderIndex, decimal(state.Index))
	writeJSON(w, http.StatusOK, contentTypeJSON, api.Written{Index: state.Index})
}
