package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/transport"
)

const (
	// serversFirst is how long a new agent process waits for an answer of the servers before it uses the last known
	// services, which may be out of date.
	serversFirst = time.Second
	// saveEvery is the least time between two writes of the file.
	saveEvery = time.Second
)

// lastKnown keeps the last known exposed services in a file. An agent that restarts while no server answers uses the
// file to open its ports and forward to the earlier backends. With path "" nothing is kept.
type lastKnown struct {
	path string
	log  hclog.Logger
	news chan transport.Services // capacity 1; has the newest services that aren't written yet
}

func newLastKnown(path string, log hclog.Logger) *lastKnown {
	return &lastKnown{path: path, log: log, news: make(chan transport.Services, 1)}
}

// read returns the services in the file. They are empty if there is no file, or if the file can't be read.
func (k *lastKnown) read() (s transport.Services) {
	b, err := os.ReadFile(k.path)
	if k.path == "" || errors.Is(err, fs.ErrNotExist) {
		return s
	}
	if err == nil {
		err = cbor.Unmarshal(b, &s)
	}
	if err != nil {
		k.log.Error("the services known last can't be read", "path", k.path, "error", err)
		return transport.Services{}
	}
	return s
}

// keep queues the exposed services of an answer for run, in place of services that are still queued. Only one goroutine
// may call it.
func (k *lastKnown) keep(answer transport.Services) {
	var exposed transport.Services
	for _, s := range answer.Services {
		if s.Expose > 0 {
			exposed.Services = append(exposed.Services, s)
		}
	}
	select {
	case <-k.news:
	default:
	}
	k.news <- exposed
}

// run writes the newest queued services, at most once per saveEvery. When ctx ends, it writes what is still queued, and
// returns.
func (k *lastKnown) run(ctx context.Context) {
	for {
		select {
		case s := <-k.news:
			k.write(s)
		case <-ctx.Done():
			select {
			case s := <-k.news:
				k.write(s)
			default:
			}
			return
		}
		sleep(ctx, saveEvery, nil)
	}
}

func (k *lastKnown) write(s transport.Services) {
	if k.path == "" {
		return
	}
	b, err := cbor.Marshal(s)
	if err == nil {
		err = durable.ReplaceBytes(k.path, b, 0o600)
	}
	if err != nil {
		k.log.Error("the services could not be written", "path", k.path, "error", err)
	}
}
