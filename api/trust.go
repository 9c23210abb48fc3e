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
	// Files says that the cluster has certificate files: the revocation frees the name, and ends no certificate.
	Files bool `json:"files,omitempty" doc:"the cluster has certificate files: the name is free for another machine, and the certificate still counts until it ends"`
}

// GossipKeys are the keys that encrypt gossip, and how far a rotation is. It is in progress while there are several
// keys.
type GossipKeys struct {
	Keys     []GossipKey `json:"keys" doc:"the oldest first; members encrypt with the active one, and decrypt with all"`
	Rotating bool        `json:"rotating" doc:"a rotation is in progress"`
	Since    time.Time   `json:"since" doc:"when the keys last changed"`
	Due      bool        `json:"due,omitempty" doc:"a revoked member may know the newest key, so a new one is due"`

	Lacking      []GossipLacking `json:"lacking" doc:"members that don't use exactly these keys yet; the first 10"`
	LackingCount int             `json:"lacking_count"`
	WaitsFor     int             `json:"waits_for" doc:"those of them for which a rotation waits"`
}

// GossipKey is a key that encrypts gossip. It has no secret.
type GossipKey struct {
	Name         model.KeyName  `json:"name"`
	Phase        model.KeyPhase `json:"phase" enum:"incoming,active,retired"`
	Since        time.Time      `json:"since" doc:"when it entered this phase"`
	CreatedIndex uint64         `json:"created_index" doc:"the log entry that made it"`
	Digest       string         `json:"digest" doc:"tells keys apart; the key does not follow from it"`
}

// GossipLacking is a member that does not use the gossip keys of the cluster yet.
type GossipLacking struct {
	Subject string `json:"subject" doc:"as in events: server:s1 or agent:n1"`
	Absent  bool   `json:"absent" doc:"it is off, or the servers don't reach it"`
	Waits   bool   `json:"waits" doc:"a rotation waits for it"`
}

// GossipRotateReply is the answer to the request for a new gossip key.
type GossipRotateReply struct {
	Written
	Begun  bool       `json:"begun" doc:"false: a rotation was in progress already"`
	Gossip GossipKeys `json:"gossip"`
}
