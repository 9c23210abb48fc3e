package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// headerForwarded carries the original caller as role/name, from the forwarding server to the leader. A request with
// this header is refused unless a server sends it.
const headerForwarded = "Outspan-Forwarded-For"

// caller is the sender of a request. via is the name of the server that forwarded it, or empty.
type caller struct {
	pki.Identity
	via string
}

// actor returns the caller's name for log entries and events.
func (c caller) actor() model.Actor {
	if c.Role == pki.RoleCLI && strings.HasPrefix(c.Name, "uid:") {
		return model.Actor(c.Name) // a user of this machine on the unix socket, identified by the kernel
	}
	return model.Actor(string(c.Role) + ":" + c.Name)
}

// identify returns who sent a request. For a forwarded request, that is the original caller. Code: forbidden.
func identify(r *http.Request) (caller, error) {
	id, ok := transport.IdentityFrom(r.Context())
	if !ok {
		return caller{}, model.Refuse(model.CodeForbidden, "the connection proves no identity").
			WithHint("use a certificate made with: outspan tls cert create --cli NAME, or the server's unix socket")
	}
	header := r.Header.Get(headerForwarded)
	if header == "" {
		return caller{Identity: id}, nil
	}
	if id.Role != pki.RoleServer {
		return caller{}, model.Refuse(model.CodeForbidden, "only a server may send %s; %s did", headerForwarded, id)
	}
	role, name, _ := strings.Cut(header, "/")
	name, err := url.PathUnescape(name)
	if err != nil || name == "" || !pki.Role(role).Valid() {
		return caller{}, model.Refuse(model.CodeForbidden, "%s from %s is not role/name", headerForwarded, id)
	}
	return caller{Identity: pki.Identity{Cluster: id.Cluster, Role: pki.Role(role), Name: name}, via: id.Name},
		nil
}

func (c caller) forwardedFor() string { return string(c.Role) + "/" + url.PathEscape(c.Name) }

// may returns an error if the caller's role may not call the operation. Code: forbidden.
func (c caller) may(rt route) error {
	if rt.allow.has(c.Role) {
		return nil
	}
	refusal := model.Refuse(model.CodeForbidden, "%s may not %s %s: it has the role %s",
		c.Name, rt.method, rt.path, c.Role)
	if c.Role == pki.RoleAgent {
		return refusal.WithHint(
			"an agent acts for its own node only; use a certificate made with: outspan tls cert create --cli NAME")
	}
	return refusal.WithHint("use a certificate made with: outspan tls cert create --cli NAME")
}

// isNode returns an error unless the caller is the agent of the node with this name. Code: forbidden.
func (c caller) isNode(name string) error {
	if c.Role == pki.RoleAgent && c.Name == name {
		return nil
	}
	return model.Refuse(model.CodeForbidden, "the certificate is for the agent %q, the request for the node %q",
		c.Name, clip(name)).
		WithHint("the name in the agent's file and in its certificate must be the same; issue one with: outspan tls cert " +
			"create --agent NAME")
}

type callerKey struct{}

func withCaller(ctx context.Context, c caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerFrom returns the caller, which guard has stored in the context of every operation.
func callerFrom(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}
