package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// TrustMember is a server or agent that a join token admitted. Its certificates count until it is revoked.
type TrustMember struct {
	Subject      string            `json:"subject" doc:"as in events: server:s1 or agent:n1"`
	Kind         model.SubjectKind `json:"kind" enum:"server,agent"`
	Name         string            `json:"name" doc:"of the server or node"`
	Token        model.TokenID     `json:"token" doc:"the join token that admitted it last"`
	IssuedIndex  uint64            `json:"issued_index" doc:"the log entry of its last admission or renewal"`
	NotAfter     time.Time         `json:"not_after" doc:"when its newest certificate expires; 1970-01-01T00:00:00Z if a server was revoked that the servers did not know"`
	Revoked      bool              `json:"revoked"`
	RevokedIndex uint64            `json:"revoked_index,omitempty"`
	Reason       string            `json:"reason,omitempty" doc:"why it was revoked"`
}

// RevokeBody gives the reason for revoking a server or agent.
type RevokeBody struct {
	Reason string `json:"reason,omitempty" maxLength:"256" doc:"for people; it stands in the event and in the list of members"`
}

// RevokeReply is the answer to the revocation of a server or agent.
type RevokeReply struct {
	Written
	Member *TrustMember  `json:"member,omitempty" doc:"absent when its row was dropped since"`
	Token  model.TokenID `json:"token,omitempty" doc:"its join token, revoked too because uses were left"`
	// Removed says that the server was in the cluster and was removed from it before the revocation.
	Removed bool `json:"removed,omitempty" doc:"this call removed the server from the cluster before it revoked it"`
}
