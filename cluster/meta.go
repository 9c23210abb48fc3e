package cluster

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Meta is what a member of the gossip pool claims about itself. Anyone with the gossip key can claim anything, so Meta
// proves nothing.
type Meta struct {
	Role   pki.Role `cbor:"1,keyasint"`           // server or agent
	BootID string   `cbor:"2,keyasint,omitempty"` // of the kernel
	// Incarnation identifies the process. Only a new incarnation shows a restart that is faster than failure detection.
	Incarnation string      `cbor:"3,keyasint,omitempty"`
	API         string      `cbor:"4,keyasint,omitempty"` // host:port of the TLS listener; servers speak raft there too
	Name        string      `cbor:"5,keyasint,omitempty"` // for people
	Server      *ServerMeta `cbor:"6,keyasint,omitempty"` // of servers only
}

// ServerMeta is the part of a Meta that only servers have. It contains what servers must know of each other while there
// is no leader.
type ServerMeta struct {
	ClusterID string           `cbor:"1,keyasint,omitempty"` // empty until the server knows its cluster
	Fresh     bool             `cbor:"2,keyasint,omitempty"` // the server has no raft state at all
	Expect    int              `cbor:"3,keyasint,omitempty"` // bootstrap_expect
	Pledge    []model.ServerID `cbor:"4,keyasint,omitempty"` // the servers with which it agreed to begin a cluster
	Room      Room             `cbor:"5,keyasint,omitempty"` // free space in its data directory
	Format    uint16           `cbor:"6,keyasint,omitempty"` // the newest format that the server can read
	Version   string           `cbor:"7,keyasint,omitempty"` // of the program, cut to 24 bytes
	Lineage   string           `cbor:"8,keyasint,omitempty"` // the lineage that the server follows
}

// metaLimit is memberlist's limit for a Meta in bytes. memberlist panics if a Meta is longer.
const metaLimit = 512

// Limits of the strings in a Meta, in bytes, and of the number of servers in a pledge.
const (
	maxMetaID      = 64
	maxMetaAddress = 72
	maxMetaVersion = 24
	maxPledge      = 7
)

// codec encodes and decodes messages between servers and agents that are not part of the log. Safe for concurrent use.
type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// newCodec returns the codec of gossip, for small messages. Its limits are low, because anyone with the gossip key may
// have made a message.
func newCodec() codec {
	return codecOf(cbor.DecOptions{MaxNestedLevels: 4, MaxArrayElements: 16, MaxMapPairs: 16})
}

// newPeerCodec returns the codec for questions between servers. Its limits are higher than those of gossip, because
// both servers are authenticated and a question may name every node.
func newPeerCodec() codec {
	return codecOf(cbor.DecOptions{MaxNestedLevels: 4, MaxArrayElements: 1 << 17, MaxMapPairs: 16})
}

// codecOf returns a codec with the given limits. It panics if cbor refuses the limits; all callers pass constants. The
// codec ignores unknown fields when it decodes, because newer versions may have more fields.
func codecOf(limits cbor.DecOptions) codec {
	limits.DupMapKey, limits.IndefLength, limits.TagsMd = cbor.DupMapKeyEnforcedAPF,
		cbor.IndefLengthForbidden, cbor.TagsForbidden
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	dec, err := limits.DecMode()
	if err != nil {
		panic(err)
	}
	return codec{enc, dec}
}

// encodeMeta encodes a Meta, with its version cut to maxMetaVersion bytes. It fails if a string or the result is too
// long.
func (c codec) encodeMeta(m Meta) ([]byte, error) {
	for _, text := range []string{m.BootID, m.Incarnation, m.Name} {
		if len(text) > maxMetaID {
			return nil, fmt.Errorf("gossip meta: %q is longer than %d bytes", text[:maxMetaID], maxMetaID)
		}
	}
	if len(m.API) > maxMetaAddress {
		return nil, fmt.Errorf("gossip meta: the address %q is longer than %d bytes", m.API, maxMetaAddress)
	}
	if m.Server != nil && len(m.Server.Version) > maxMetaVersion {
		server := *m.Server
		server.Version = server.Version[:maxMetaVersion]
		m.Server = &server
	}
	buf, err := c.enc.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("gossip meta: %w", err)
	}
	if len(buf) > metaLimit {
		return nil, fmt.Errorf("gossip meta: %d bytes, at most %d fit", len(buf), metaLimit)
	}
	return buf, nil
}

func (c codec) decodeMeta(buf []byte) (Meta, error) {
	var m Meta
	if len(buf) > metaLimit {
		return m, fmt.Errorf("gossip meta: %d bytes, at most %d are allowed", len(buf), metaLimit)
	}
	if err := c.dec.Unmarshal(buf, &m); err != nil {
		return Meta{}, fmt.Errorf("gossip meta: %w", err)
	}
	if m.Role != pki.RoleServer && m.Role != pki.RoleAgent {
		return Meta{}, fmt.Errorf("gossip meta: unknown role %q", m.Role)
	}
	return m, nil
}
