package client

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Series are the figures that each server keeps of the last day.
type Series struct{ calls }

// SeriesOptions say what to read. The zero value means all series of the cluster and of the answering server that the
// caller may read, of the last hour.
type SeriesOptions struct {
	Names []string // default: all that the caller may read
	Job   model.JobName
	Node  string // name or id; not together with Job
	// From is a time in RFC 3339, or how long ago such as "6h"; default "1h". To is the same; default now.
	From, To string
	Step     time.Duration // default: a suitable one
	Server   string        // that sampled; default: the server that answers
}

// Read returns series in columns of equal length. Codes: invalid, forbidden; not_found if nothing is kept of the job or
// node, or if there is no such server.
func (s Series) Read(ctx context.Context, o SeriesOptions) (Response[api.Series], error) {
	q := url.Values{}
	for name, value := range map[string]string{"names": strings.Join(o.Names, ","), "job": string(o.Job), "node": o.Node,
		"from": o.From, "to": o.To, "server": o.Server} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if o.Step != 0 {
		q.Set("step", model.Duration(o.Step.Milliseconds()).String())
	}
	return read[api.Series](ctx, s.calls, route("series"), q)
}
