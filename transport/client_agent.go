package transport

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Register registers this agent's node. On success, the registration is committed. Register blocks as Caller.Send does.
// Codes: node_taken, name_taken, conflict, invalid, forbidden, stale, rate_limited, and those of Caller.Send.
func (c *Client) Register(ctx context.Context, r RegisterRequest) (RegisterReply, error) {
	return askAgent[RegisterReply](ctx, c, CallRegister, r, 0)
}

// Report sends observations. On success, they are committed. Report blocks as Caller.Send does. Codes: stale for an
// older epoch, not_found for a node that must register, not_caught_up, forbidden, rate_limited, and those of
// Caller.Send.
func (c *Client) Report(ctx context.Context, r ReportRequest) (ReportReply, error) {
	return askAgent[ReportReply](ctx, c, CallReport, r, 0)
}

// Assignments returns what this agent must run or stop. It waits at most r.Wait for a change. Codes: not_caught_up, and
// those of Caller.Send.
func (c *Client) Assignments(ctx context.Context, r AssignmentsRequest) (Assignments, error) {
	return askAgent[Assignments](ctx, c, CallAssignments, r, r.Wait)
}

// Services returns the services and their backends. It waits at most r.Wait for a change. Codes as for Assignments.
func (c *Client) Services(ctx context.Context, r ServicesRequest) (Services, error) {
	return askAgent[Services](ctx, c, CallServices, r, r.Wait)
}

// Peers returns new lists of peers for groups that have an instance on this agent's node. It waits at most r.Wait for a
// change. Codes as for Assignments.
func (c *Client) Peers(ctx context.Context, r PeersRequest) (Peers, error) {
	return askAgent[Peers](ctx, c, CallPeers, r, r.Wait)
}

// Renew asks for this agent's next certificate. On success, the cluster knows the new key. Renew blocks as Caller.Send
// does. Codes: invalid, forbidden (another name or role), member_revoked, stale (the certificate in use was replaced
// earlier), not_supported (the cluster issues no certificates), rate_limited, and those of Caller.Send.
func (c *Client) Renew(ctx context.Context, r RenewRequest) (RenewReply, error) {
	return askAgent[RenewReply](ctx, c, CallRenew, r, 0)
}

// Trust says which keys this agent uses, and returns what the cluster trusts. It waits at most r.Wait for news. Codes:
// forbidden (another name), not_supported (the cluster issues no certificates), and those of Assignments.
func (c *Client) Trust(ctx context.Context, r TrustRequest) (TrustNews, error) {
	return askAgent[TrustNews](ctx, c, CallTrust, r, r.Wait)
}

// askAgent makes one call of the agents' protocol and tries the servers in turn. It may repeat the call, because all
// calls are idempotent.
func askAgent[A any](ctx context.Context, c *Client, call AgentCall, question any,
	wait model.Duration) (answer A, err error) {
	body, err := EncodeCBOR(question)
	if err != nil {
		return answer, model.Refuse(model.CodeInternal, "can't encode the request: %v", err)
	}
	limit := 15*time.Second + time.Duration(wait)*time.Millisecond
	var got []byte
	err = c.Deliver(ctx, &reach.Request{Method: http.MethodPost, Lineage: true},
		func(ctx context.Context, server reach.Endpoint) (err error) {
			got, err = c.ask(ctx, server, limit, call, body)
			return err
		})
	if err != nil {
		return answer, err
	}
	err = DecodeCBOR(got, &answer)
	return answer, err
}

// PathPeer is the path prefix of the questions that servers ask each other. The question's name follows it.
const PathPeer = "/v1/peer/"

// PathPeerRelay is the path to which a server forwards its agents' calls to the leader.
const PathPeerRelay = PathPeer + "relay"

// PeerClient calls other servers with this server's certificate. It is safe for concurrent use.
type PeerClient struct{ via *reach.HTTPTransport }

// NewPeerClient returns a PeerClient. d.Credentials must be a server's.
func NewPeerClient(d Dialer) *PeerClient {
	d.Peer = pki.RoleServer
	return &PeerClient{via: d.HTTPTransport()}
}

// NewAgentTransport returns a transport with which a server or an agent calls agents.
func NewAgentTransport(d Dialer) *reach.HTTPTransport {
	d.Peer = pki.RoleAgent
	return d.HTTPTransport()
}

// RoundTrip implements http.RoundTripper, so that a server can forward HTTP requests to another one.
func (p *PeerClient) RoundTrip(r *http.Request) (*http.Response, error) { return p.via.RoundTrip(r) }

// Close closes idle connections.
func (p *PeerClient) Close() { p.via.CloseIdleConnections() }

// AskPeer sends a question to the server at address (host:port) and returns the answer. It makes only one attempt, and
// blocks until the attempt has succeeded or failed, or ctx ends. Codes: those of Caller.Send, and those of the answer.
func (p *PeerClient) AskPeer(ctx context.Context, address, question string, body []byte) ([]byte, error) {
	got, err := reach.To(address, p.via).Send(ctx, reach.Request{
		Method: http.MethodPost, Path: PathPeer + url.PathEscape(question), Body: body, Content: ContentTypeCBOR, Once: true,
	})
	return got.Body, err
}
