package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Token is a join token, without its secret.
type Token struct {
	ID           model.TokenID     `json:"id"`
	Role         string            `json:"role" enum:"server,agent" doc:"server admits servers and their agents"`
	State        TokenState        `json:"state" enum:"active,used,expired,revoked,ca_replaced" doc:"ca_replaced: it names a CA that another has replaced since, so it admits nobody"`
	Expires      time.Time         `json:"expires"`
	Uses         int               `json:"uses" doc:"how many newcomers it admits in all"`
	Used         int               `json:"used"`
	NodeName     string            `json:"node_name" doc:"pattern for the newcomer's name; empty: every name"`
	Labels       map[string]string `json:"labels" doc:"of the nodes that it admits"`
	CreatedBy    model.Actor       `json:"created_by"`
	CreatedIndex uint64            `json:"created_index"`
	RevokedIndex uint64            `json:"revoked_index,omitempty"`
}

// TokenState says whether a token still admits newcomers.
type TokenState string

// The states of tokens. Only an active token admits newcomers.
const (
	TokenActive  TokenState = "active"
	TokenUsed    TokenState = "used" // all uses are spent
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"

	TokenCAReplaced TokenState = "ca_replaced" // another CA is active than when it was made
)

// TokenBody describes a new join token.
type TokenBody struct {
	Role     string            `json:"role" enum:"server,agent"`
	TTL      *model.Duration   `json:"ttl,omitempty" doc:"1s to 365 days; default 1h"`
	Uses     *int              `json:"uses,omitempty" doc:"how many newcomers it admits, 1 to 1000; default 1"`
	NodeName string            `json:"node_name,omitempty" maxLength:"128" doc:"pattern for the newcomer's name, such as web-*; default: every name"`
	Labels   map[string]string `json:"labels,omitempty" doc:"of the nodes that it admits"`
}

// TokenReply is the answer to a change of a join token.
type TokenReply struct {
	Written
	Token *Token `json:"token,omitempty" doc:"absent when its row was dropped since"`
}

// NewTokenReply is the answer to the creation of a join token.
type NewTokenReply struct {
	TokenReply
	Text string `json:"text,omitempty" doc:"the secret text, which the newcomer needs; only this answer has it, and a dry run has none"`
}
