package transport

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// Register makes this agent's node known. It blocks until the registration is committed or ctx ends. Codes: name_taken,
// invalid, forbidden, and those of Send.
func (c *Client) Register(ctx context.Context, r RegisterRequest) (RegisterReply, error) {
	return askAgent[RegisterReply](ctx, c, CallRegister, r, 0)
}

// Report sends observations. It blocks until they are committed or ctx ends. Codes: stale for an older epoch, not_found
// for a node that must register, and those of Send.
func (c *Client) Report(ctx context.Context, r ReportRequest) (ReportReply, error) {
	return askAgent[ReportReply](ctx, c, CallReport, r, 0)
}

// Assignments waits for what this agent must run, at most r.Wait. Codes: not_caught_up, and those of Send.
func (c *Client) Assignments(ctx context.Context, r AssignmentsRequest) (Assignments, error) {
	return askAgent[Assignments](ctx, c, CallAssignments, r, r.Wait)
}

// Services waits for the services and their backends, at most r.Wait. Codes as Assignments.
func (c *Client) Services(ctx context.Context, r ServicesRequest) (Services, error) {
	return askAgent[Services](ctx, c, CallServices, r, r.Wait)
}

// Peers waits for news of groups that have an instance on this agent's node, at most r.Wait. Codes as Assignments.
func (c *Client) Peers(ctx context.Context, r PeersRequest) (Peers, error) {
	return askAgent[Peers](ctx, c, CallPeers, r, r.Wait)
}

// askAgent is one call of the agents' protocol, to whichever server answers. All of them are idempotent.
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

// PathPeer is where servers put questions to each other; the question's name follows.
const PathPeer = "/v1/peer/"

// PathPeerRelay is where a server asks the leader for its agents.
const PathPeerRelay = PathPeer + "relay"

// PeerClient calls other servers, as a server. Safe for many goroutines.
type PeerClient struct{ via *reach.HTTPTransport }

// NewPeerClient needs a server's credentials. dial opens the connection below TLS; nil: net.Dialer.
func NewPeerClient(d Dialer) *PeerClient {
	d.Peer = RoleServer
	return &PeerClient{via: d.HTTPTransport()}
}

// NewAgentTransport calls agents, as a server: for logs.
func NewAgentTransport(d Dialer) *reach.HTTPTransport {
	d.Peer = RoleAgent
	return d.HTTPTransport()
}

// RoundTrip implements http.RoundTripper, for requests that are forwarded.
func (p *PeerClient) RoundTrip(r *http.Request) (*http.Response, error) { return p.via.RoundTrip(r) }

// Close closes idle connections.
func (p *PeerClient) Close() { p.via.CloseIdleConnections() }

// AskPeer puts a question to the server at address (host:port) and returns its answer; once, until ctx ends. Codes:
// unreachable, certificate_refused, and those of the answer.
func (p *PeerClient) AskPeer(ctx context.Context, address, question string, body []byte) ([]byte, error) {
	got, err := reach.To(address, p.via).Send(ctx, reach.Request{
		Method: http.MethodPost, Path: PathPeer + url.PathEscape(question), Body: body, Content: ContentTypeCBOR, Once: true,
	})
	return got.Body, err
}
