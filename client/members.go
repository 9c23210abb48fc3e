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

// Members are the operations on servers. A server is named by its id, or by its name if no other server has that name.
type Members struct{ calls }

// List returns the servers. It reads all pages.
func (m Members) List(ctx context.Context, o ListOptions) (List[api.Member], error) {
	return list[api.Member](ctx, m.calls, route("members"), o.query())
}

// All yields the servers and reads each page when it is needed. If a read fails, All yields the error and stops.
func (m Members) All(ctx context.Context, o ListOptions) iter.Seq2[api.Member, error] {
	return each[api.Member](ctx, m.calls, route("members"), o.query())
}

// MemberOptions are the options of operations that change the servers.
type MemberOptions struct {
	RequestID model.RequestID // default: a new one for each call
}

func (o MemberOptions) query() url.Values { return WriteOptions{RequestID: o.RequestID}.query() }

// Join makes the answering server contact a new server, whose gossip address is body.Address. The leader then adds the
// new server. Join does nothing if the new server is a live member already. Codes: invalid, timeout, conflict.
func (m Members) Join(ctx context.Context, body api.JoinBody, o MemberOptions) (Response[api.MemberReply], error) {
	return write[api.MemberReply](ctx, m.calls, http.MethodPost, route("members", "join"), o.query(), body)
}

// Promote makes a server a voter. If the server is not a member yet, Promote only adds it without a vote; it becomes a
// voter once it has kept up for some time. Codes: not_found, conflict.
func (m Members) Promote(ctx context.Context, ref string, o MemberOptions) (Response[api.MemberReply], error) {
	return write[api.MemberReply](ctx, m.calls, http.MethodPost, route("members", ref, "promote"), o.query(), nil)
}

// TransferLeader hands leadership to the voter body.To. If body.To is empty, the leader chooses the voter: it prefers
// voters that answer, then voters with more disk space, then voters with a longer log.
func (m Members) TransferLeader(
	ctx context.Context, body api.TransferBody, o MemberOptions,
) (Response[api.MemberReply], error) {
	return write[api.MemberReply](ctx, m.calls, http.MethodPost, route("members", "transfer-leader"), o.query(), body)
}

// RemoveOptions are the options of Members.Remove.
type RemoveOptions struct {
	MemberOptions
	Force bool // remove the server even if the other servers have no working majority
}

// Remove removes a server from the cluster permanently. Codes: not_found; conflict if the other servers would have no
// working majority, or if no voter would remain; unknown if the server may still be removed.
func (m Members) Remove(ctx context.Context, ref string, o RemoveOptions) (Response[api.MemberReply], error) {
	query := o.query()
	if o.Force {
		query.Set("force", "true")
	}
	return write[api.MemberReply](ctx, m.calls, http.MethodDelete, route("members", ref), query, nil)
}

// Verify compares the states of all servers. It waits up to patience for servers that lag. patience is at most 1 min; 0
// means 10 s.
func (m Members) Verify(ctx context.Context, patience time.Duration) (Response[api.Verification], error) {
	query := url.Values{}
	if patience > 0 {
		query.Set("wait", patience.String())
	}
	return read[api.Verification](ctx, m.calls, route("members", "verify"), query)
}
