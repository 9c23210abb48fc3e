package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// CA says which CAs the cluster has, and how far the replacement of one by another has come.
type CA struct {
	CAs []CACertificate `json:"cas" doc:"the oldest first; members trust all of them"`
	// Rotation is nil if the cluster has one CA and no member trusts another one.
	Rotation *CARotation `json:"rotation,omitempty" doc:"absent unless one CA replaces another"`
	Tokens   int         `json:"tokens" doc:"join tokens that a rotation ends: those that were made since the CA that signs now was first used; while a rotation waits for renewals or its grace, those of the CA before"`
	// Newcomers wait for an approval, or have one and have not asked again.
	Newcomers int `json:"newcomers" doc:"machines that wait to be approved, or were approved a moment ago, by one of these tokens: they must join again with another one"`
}

// CACertificate is a CA of the cluster.
type CACertificate struct {
	Name        model.KeyName  `json:"name"`
	Phase       model.KeyPhase `json:"phase" enum:"incoming,active,retired" doc:"active signs certificates; the others are only trusted"`
	Fingerprint string         `json:"fingerprint" doc:"SHA-256 of the certificate, in hex"`
	NotAfter    time.Time      `json:"not_after"`
}

// CAStep is a step of the replacement of a CA.
type CAStep string

// The steps, in their order.
const (
	CADistribute CAStep = "distribute" // until every member trusts both CAs
	CARenew      CAStep = "renew"      // until every member has a certificate of the new CA
	CAGrace      CAStep = "grace"      // until the grace has passed; then the old CA is dropped
	CAForget     CAStep = "forget"     // until no member trusts the old CA
)

// CARotation is the replacement of one CA by another.
type CARotation struct {
	Step       CAStep        `json:"step" enum:"distribute,renew,grace,forget" doc:"distribute: until every member trusts both CAs; renew: until every member has a certificate of the new CA; grace: until kept_until; forget: the old CA is dropped, and members stop trusting it"`
	To         model.KeyName `json:"to" doc:"the new CA"`
	Since      time.Time     `json:"since" doc:"when the step began; for grace and forget when the new CA was first used"`
	Waiting    int           `json:"waiting" doc:"how many members the step waits for"`
	WaitingFor []CAWaiting   `json:"waiting_for" doc:"the first 10 of them"`
	Passed     []string      `json:"passed" doc:"members that are left behind, as server:s1 or agent:n1"`
	KeptUntil  *time.Time    `json:"kept_until,omitempty" doc:"when the old CA may be dropped, if a grace was given"`
}

// CAWaiting is a member that a rotation waits for.
type CAWaiting struct {
	Subject string `json:"subject" doc:"server:s1 or agent:n1"`
	Absent  bool   `json:"absent" doc:"it is off, or the servers don't reach it"`
}

// RotateCABody says how a CA is to be replaced.
type RotateCABody struct {
	Force bool            `json:"force,omitempty" doc:"don't wait for members: those that names has, or else all that are off now; they must join again with a token"`
	Names []string        `json:"names,omitempty" maxItems:"1000" doc:"names of servers and nodes to leave behind; needs force"`
	Grace *model.Duration `json:"grace,omitempty" doc:"how long the old CA stays trusted after the new one is used, 0s to 90 days; default 0s. Only the request that begins the rotation may have it"`
}

// CAReply is the answer to a request to replace the CA.
type CAReply struct {
	Written
	CA *CA `json:"ca,omitempty"`
}
