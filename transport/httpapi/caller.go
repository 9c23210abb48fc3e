package httpapi

import (
	"context"
	"net/url"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// headerForwarded carries the subject of the original caller from the forwarding server to the leader. A request with
// this header is refused unless a server sends it.
const headerForwarded = "Outspan-Forwarded-For"

// caller is the sender of a request. If a server forwarded the request, via is the name of that server.
type caller struct {
	model.Subject
	token model.TokenID // the id of its access token; empty if it has none
	via   string
	login bool // the request is a login: it proves who the caller is, and needs no right and no access token
	clock *clock
}

// clock is the wall clock by which access tokens end. Without one it is that of this machine.
type clock struct{ now func() time.Time }

func (c *clock) time() time.Time {
	if c == nil {
		return time.Now()
	}
	return c.now()
}

// role returns the role that decides what the caller may do.
func (c caller) role() pki.Role {
	switch c.Kind {
	case model.SubjectServer:
		return pki.RoleServer
	case model.SubjectAgent:
		return pki.RoleAgent
	case model.SubjectCert, model.SubjectUID, model.SubjectToken, model.SubjectOIDC:
		return pki.RoleCLI
	}
	return "" // may call nothing
}

// forwardedFor returns the value of headerForwarded.
func (c caller) forwardedFor() string { return url.PathEscape(c.String()) }

// may returns an error if the caller's role may not call the operation. Code: forbidden.
func (c caller) may(rt route) error {
	if rt.allow.has(c.role()) {
		return nil
	}
	refusal := model.Refuse(model.CodeForbidden, "%s may not %s %s: it has the role %s",
		c.Name, rt.method, rt.path, c.role())
	if c.Kind == model.SubjectAgent {
		return refusal.WithHint("an agent acts for its own node only; %s", makeOne)
	}
	return refusal.WithHint("%s", makeOne)
}

// makeOne is the hint for a person without a good certificate.
const makeOne = "make a certificate on a server with: outspan cert create NAME; without tls { managed = true }: " +
	"outspan tls cert create --cli NAME"

// isNode returns an error unless the caller is the agent of the node with this name. Code: forbidden.
func (c caller) isNode(name string) error {
	if c.Kind == model.SubjectAgent && c.Name == name {
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
