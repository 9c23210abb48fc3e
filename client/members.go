package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Members are the servers. A server is named by its id or name.
type Members struct{ calls }

// List reads the servers, all pages in one.
func (m Members) List(ctx context.Context, o ListOptions) (List[api.Member], error) {
	return list[api.Member](ctx, m.calls, route("members"), o.query())
}

// All yields the servers; pages are read as they are needed. After an error it ends.
func (m Members) All(ctx context.Context, o ListOptions) iter.Seq2[api.Member, error] {
	return each[api.Member](ctx, m.calls, route("members"), o.query())
}

// MemberOptions are those of a change of who the servers are.
type MemberOptions struct {
	RequestID model.RequestID // default: a new one for each call
}

func (o MemberOptions) query() url.Values { return WriteOptions{RequestID: o.RequestID}.query() }

// Join makes the cluster look for a new server at the address of its gossip; the leader takes in what is found.
func (m Members) Join(ctx context.Context, body api.JoinBody, o MemberOptions) (Response[api.MemberReply], error) {
	return write[api.MemberReply](ctx, m.calls, http.MethodPost, route("members", "join"), o.query(), body)
}

// Promote lets a server vote.
func (m Members) Promote(ctx context.Context, ref string, o MemberOptions) (Response[api.MemberReply], error) {
	return write[api.MemberReply](ctx, m.calls, http.MethodPost, route("members", ref, "promote"), o.query(), nil)
}

// TransferLeader hands leadership to another server.
func (m Members) TransferLeader(
	ctx context.Context, body api.TransferBody, o MemberOptions,
) (Response[api.MemberReply], error) {
	return write[api.MemberReply](ctx, m.calls, http.MethodPost, route("members", "transfer-leader"), o.query(), body)
}

// RemoveOptions are those of Members.Remove.
type RemoveOptions struct {
	MemberOptions
	Force bool // also where the rest would have no majority
}

// Remove takes a server out of the cluster for good.
func (m Members) Remove(ctx context.Context, ref string, o RemoveOptions) (Response[api.MemberReply], error) {
	query := o.query()
	if o.Force {
		query.Set("force", "true")
	}
	return write[api.MemberReply](ctx, m.calls, http.MethodDelete, route("members", ref), query, nil)
}

// Verify compares the states of all servers. It waits for those that are behind, at most patience, which is at most
// 1 min; 0: 10 s.
func (m Members) Verify(ctx context.Context, patience time.Duration) (Response[api.Verification], error) {
	query := url.Values{}
	if patience > 0 {
		query.Set("wait", patience.String())
	}
	return read[api.Verification](ctx, m.calls, route("members", "verify"), query)
}
