package transport

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// Register registers this agent's node. It blocks until the registration is committed or ctx ends. Codes: name_taken,
// invalid, forbidden, and those of Send.
func (c *Client) Register(ctx context.Context, r RegisterRequest) (RegisterReply, error) {
	return askAgent[RegisterReply](ctx, c, CallRegister, r, 0)
}

// Report sends observations. It blocks until they are committed or ctx ends. Codes: stale for an older epoch, not_found
// for a node that must register, and those of Send.
func (c *Client) Report(ctx context.Context, r ReportRequest) (ReportReply, error) {
	return askAgent[ReportReply](ctx, c, CallReport, r, 0)
}

// Assignments waits at most r.Wait for what this agent must run. Codes: not_caught_up, and those of Send.
func (c *Client) Assignments(ctx context.Context, r AssignmentsRequest) (Assignments, error) {
	return askAgent[Assignments](ctx, c, CallAssignments, r, r.Wait)
}

// Services waits at most r.Wait for the services and their backends. Codes as Assignments.
func (c *Client) Services(ctx context.Context, r ServicesRequest) (Services, error) {
	return askAgent[Services](ctx, c, CallServices, r, r.Wait)
}

// Peers waits at most r.Wait for news of groups that have an instance on this agent's node. Codes as Assignments.
func (c *Client) Peers(ctx context.Context, r PeersRequest) (Peers, error) {
	return askAgent[Peers](ctx, c, CallPeers, r, r.Wait)
}

// askAgent makes one call of the agents' protocol, to the first server that answers. All calls are idempotent.
func askAgent[A any](ctx context.Context, c *Client, call AgentCall, question any,
	wait model.Duration) (answer A, err error) {
	body, err := EncodeCBOR(question)
	if err != nil {
		return answer, model.Refuse(model.CodeInternal, "can't encode the request: %v", err)
	}
	limit := 15*time.Second + time.Duration(wait)*time.Millisecond
	var got []byte
	err = c.Deliver(ctx, &reach.Request{Method: http.MethodPost, Lineage: true},
		func(ctx context.Context, server int) (err error) {
			got, err = c.ask(ctx, server, limit, call, body)
			return err
		})
	if err != nil {
		return answer, err
	}
	err = DecodeCBOR(got, &answer)
	return answer, err
}

// PathPeer is where servers ask each other questions; the question's name follows.
const PathPeer = "/v1/peer/"

// PathPeerRelay is where a server forwards its agents' calls to the leader.
const PathPeerRelay = PathPeer + "relay"

// PeerClient calls other servers, as a server. It is safe for many goroutines.
type PeerClient struct{ via *reach.HTTPTransport }

// NewPeerClient makes a PeerClient. d needs a server's credentials.
func NewPeerClient(d Dialer) *PeerClient {
	d.Peer = RoleServer
	return &PeerClient{via: d.HTTPTransport()}
}

// NewAgentTransport returns a transport for calls of a server or an agent to agents.
func NewAgentTransport(d Dialer) *reach.HTTPTransport {
	d.Peer = RoleAgent
	return d.HTTPTransport()
}

// RoundTrip implements http.RoundTripper, for requests that are forwarded.
func (p *PeerClient) RoundTrip(r *http.Request) (*http.Response, error) { return p.via.RoundTrip(r) }

// Close closes idle connections.
func (p *PeerClient) Close() { p.via.CloseIdleConnections() }

// AskPeer asks the server at address (host:port) a question and returns its answer. It tries once, until ctx ends.
// Codes: unreachable, certificate_refused, and those of the answer.
func (p *PeerClient) AskPeer(ctx context.Context, address, question string, body []byte) ([]byte, error) {
	got, err := reach.To(address, p.via).Send(ctx, reach.Request{
		Method: http.MethodPost, Path: PathPeer + url.PathEscape(question), Body: body, Content: ContentTypeCBOR, Once: true,
	})
	return got.Body, err
}
