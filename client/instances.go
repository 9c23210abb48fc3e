package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/outspan/outspan/api"
)

// Instances are the operations on instances, each of which is one run of a group's program. An instance is named by its
// id or a unique prefix; in writes, the prefix has at least 6 characters.
type Instances struct{ calls }

// InstanceListOptions select instances.
type InstanceListOptions struct {
	ListOptions
	Job   string // only instances of this job
	Group string // only instances of this group of Job
	Node  string // only instances on this node
	All   bool   // also terminal instances
}

func (o InstanceListOptions) query() url.Values {
	q := o.ListOptions.query()
	set(q, "job", o.Job)
	set(q, "group", o.Group)
	set(q, "node", o.Node)
	if o.All {
		q.Set("all", "true")
	}
	return q
}

// List returns the instances. It reads all pages.
func (i Instances) List(ctx context.Context, o InstanceListOptions) (List[api.Instance], error) {
	return list[api.Instance](ctx, i.calls, route("instances"), o.query())
}

// All yields the instances and reads each page when it is needed. If a read fails, All yields the error and stops.
func (i Instances) All(ctx context.Context, o InstanceListOptions) iter.Seq2[api.Instance, error] {
	return each[api.Instance](ctx, i.calls, route("instances"), o.query())
}

// Get returns one instance. Codes: not_found, ambiguous.
func (i Instances) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Instance], error) {
	return read[api.Instance](ctx, i.calls, route("instances", ref), o.query())
}

// Why explains the state of an instance.
func (i Instances) Why(ctx context.Context, ref string, o ReadOptions) (Response[api.Why], error) {
	return read[api.Why](ctx, i.calls, route("instances", ref, "why"), o.query())
}

// Stats returns what an instance uses now. It takes about a second. Any server answers, by asking the agent. Codes:
// not_found, ambiguous, not_running (the instance has ended, or has not started), agent_unreachable, busy.
func (i Instances) Stats(ctx context.Context, ref string) (Response[api.InstanceStats], error) {
	return read[api.InstanceStats](ctx, i.calls, route("instances", ref, "stats"), nil)
}

// Evict stops an instance if its budget and its role allow the stop, and the instance is replaced. With body.Surge, the
// instance is stopped only once its replacement is ready. An instance with a replicated volume is stopped only once its
// copy is in sync on another node. With body.BypassBudget, Evict ignores budget, role and copy. With body.Cancel, it
// withdraws an earlier eviction that still waits. Codes: budget_min_ready, budget_rate, stopping.
func (i Instances) Evict(
	ctx context.Context, ref string, body api.EvictBody, o WriteOptions,
) (Response[api.InstanceReply], error) {
	return write[api.InstanceReply](ctx, i.calls, http.MethodPost, route("instances", ref, "evict"), o.query(), body)
}

// Stop stops an instance as Evict does, but never waits for a copy or a replacement, and refuses body.Surge. If ref is
// a whole id, Stop also stops an instance that runs although the servers don't know it.
func (i Instances) Stop(
	ctx context.Context, ref string, body api.EvictBody, o WriteOptions,
) (Response[api.InstanceReply], error) {
	return write[api.InstanceReply](ctx, i.calls, http.MethodPost, route("instances", ref, "stop"), o.query(), body)
}

// Restart restarts the program of an instance in place. Code: stopping if the instance is stopping or has stopped.
func (i Instances) Restart(ctx context.Context, ref string, o WriteOptions) (Response[api.InstanceReply], error) {
	return write[api.InstanceReply](ctx, i.calls, http.MethodPost, route("instances", ref, "restart"), o.query(), nil)
}

// LogStream is one of the output streams of a program.
type LogStream string

// The streams. The zero value means both.
const (
	Stdout LogStream = "stdout"
	Stderr LogStream = "stderr"
)

// LogOptions select the part of a log to read. The zero value selects the whole log that is kept.
type LogOptions struct {
	Stream     LogStream
	Follow     bool   // continue with new output
	Tail       *int   // begin with this many of the last lines; nil means the oldest line that is kept
	Timestamps bool   // begin each line with the time at which the program wrote it
	Since      string // omit lines older than a duration, such as 10m, or than a time in RFC 3339
}

func (o LogOptions) query() url.Values {
	q := url.Values{}
	set(q, "stream", string(o.Stream))
	set(q, "since", o.Since)
	if o.Follow {
		q.Set("follow", "true")
	}
	if o.Timestamps {
		q.Set("timestamps", "true")
	}
	if o.Tail != nil {
		q.Set("tail", strconv.Itoa(*o.Tail))
	}
	return q
}

// InstanceLogOptions are the options of Instances.Logs.
type InstanceLogOptions struct {
	LogOptions
	// Offset is the position of the first byte to read; a negative Offset is counted from the end. Offset needs Stream and
	// excludes Tail. If Offset is nil, LogOptions decide where to begin.
	Offset *int64
}

// Logs opens the output of an instance. The caller closes the stream. With o.Follow, reading blocks until there is more
// output.
func (i Instances) Logs(ctx context.Context, ref string, o InstanceLogOptions) (io.ReadCloser, error) {
	query := o.query()
	if o.Offset != nil {
		query.Set("offset", strconv.FormatInt(*o.Offset, 10))
	}
	return open(ctx, i.calls, route("instances", ref, "logs"), query, "")
}
