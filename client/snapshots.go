package client

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/reach"
)

// Snapshots are the operations on snapshots. A snapshot contains the whole replicated state.
type Snapshots struct{ calls }

// Save opens a stream with a snapshot of the current state. The caller closes the stream, and must check that the
// snapshot is complete, because a broken connection may cut off its end.
func (s Snapshots) Save(ctx context.Context, consistency Consistency) (io.ReadCloser, error) {
	return open(ctx, s.calls, route("snapshot"), ReadOptions{Consistency: consistency}.query(), "")
}

// restoreTime limits how long the servers may take to check and load a snapshot.
const restoreTime = 10 * time.Minute

// Restore replaces the state of the whole cluster with the snapshot in the first size bytes of from. Once a server may
// have carried out the request, Restore does not send it again. So after the code unknown, check the state of the
// cluster. After an error, an abandoned attempt may still be reading the snapshot for a moment.
func (s Snapshots) Restore(ctx context.Context, from io.ReaderAt, size int64) (Response[api.Written], error) {
	return send[api.Written](ctx, s.calls, reach.Request{
		Method: http.MethodPut, Path: route("snapshot"), Upload: io.NewSectionReader(from, 0, size),
		Content: "application/octet-stream", Limit: restoreTime, Once: true,
	})
}
