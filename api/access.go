package api

import (
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// AccessToken lets a script call the API without a certificate. This is the token without its secret.
type AccessToken struct {
	ID           model.TokenID     `json:"id"`
	Name         string            `json:"name"`
	Subject      string            `json:"subject" doc:"who its holder is; bindings may name it"`
	State        AccessState       `json:"state" enum:"active,ended,revoked"`
	Ends         time.Time         `json:"ends"`
	Roles        []rights.RoleName `json:"roles" doc:"that it gives by itself; bindings may give more"`
	Groups       []string          `json:"groups" doc:"to which its holder belongs"`
	Person       string            `json:"person" doc:"a readable name of the holder; empty for scripts"`
	CreatedBy    model.Actor       `json:"created_by"`
	CreatedIndex uint64            `json:"created_index"`
	RevokedIndex uint64            `json:"revoked_index,omitempty"`
}

// AccessState says whether an access token still counts.
type AccessState string

// The states of access tokens. Only an active token counts.
const (
	AccessActive  AccessState = "active"
	AccessEnded   AccessState = "ended"
	AccessRevoked AccessState = "revoked"
)

// AccessTokenBody describes a new access token.
type AccessTokenBody struct {
	Name   string            `json:"name" maxLength:"64" doc:"letters, digits, -, _, . and @; no other token that counts has it"`
	Roles  []rights.RoleName `json:"roles,omitempty"`
	Groups []string          `json:"groups,omitempty"`
	TTL    *model.Duration   `json:"ttl,omitempty" doc:"1s to 366 days; default 30 days"`
}

// AccessTokenReply is the answer to a change of an access token.
type AccessTokenReply struct {
	Written
	Token *AccessToken `json:"token,omitempty" doc:"absent when its row was dropped since"`
}

// NewAccessTokenReply is the answer to the creation of an access token.
type NewAccessTokenReply struct {
	AccessTokenReply
	Text string `json:"text,omitempty" doc:"the secret text; only this answer has it, and a dry run has none"`
	// programs before this field leave it out
	Taken bool `json:"taken" doc:"the server that made it, which is the leader, takes access tokens; others may be configured otherwise"`
}
