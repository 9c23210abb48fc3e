package transport

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// A newcomer has a join token and no certificate. It sends one JoinRequest over a TLS connection of its own (ALPN
// pki.JoinProtocol) and gets one JoinReply. Each of the two is a length (uint32, big endian) and a message in CBOR. An
// agent whose certificate has expired does the same, with a RejoinRequest in place of the token.

// maxJoinMessage is the largest size of a message in bytes, in either direction.
const maxJoinMessage = 64 << 10

// Bounds of the fields of a JoinRequest, in bytes.
const (
	maxJoinToken   = 256
	maxJoinCSR     = 8 << 10
	maxJoinAddress = 300
	maxJoinVersion = 100
)

// joinTime limits the time from the handshake of a newcomer's connection to its end.
const joinTime = 20 * time.Second

// JoinRequest is what a newcomer asks for. It contains the token, so it must not be logged.
type JoinRequest struct {
	Token string `cbor:"1,keyasint"` // as pki.JoinToken.Reveal returns it; Join fills it in
	// Server and Agent are requests for certificates as pki.NewRequest makes them. One of them may be empty. If a newcomer
	// repeats its request because an answer was lost, these must be the same, so that the token is used once.
	Server []byte `cbor:"2,keyasint,omitempty"`
	Agent  []byte `cbor:"3,keyasint,omitempty"`
	// Address is where others reach the newcomer's API, as host:port. It may be empty if Server is.
	Address string            `cbor:"4,keyasint,omitempty"`
	Version string            `cbor:"5,keyasint,omitempty"` // of the newcomer's program
	Labels  map[string]string `cbor:"6,keyasint,omitempty"` // of the newcomer's node, bounded as by model.CheckLabels
	// Rejoin is set by an agent whose certificate has expired. The other fields are then empty.
	Rejoin *RejoinRequest `cbor:"7,keyasint,omitempty"`
	// Known says that the newcomer is a server of the cluster already, by this name and key. It is refused otherwise.
	Known bool `cbor:"38,keyasint,omitempty"`
}

// JoinReply is what a newcomer gets. Either Problem is set, or the other fields are. To a server it contains secret
// keys, so it must not be logged.
type JoinReply struct {
	Problem *api.Problem `cbor:"1,keyasint,omitempty"`
	Cluster string       `cbor:"2,keyasint,omitempty"` // name of the cluster
	Roots   [][]byte     `cbor:"3,keyasint,omitempty"` // all CAs that count, as DER
	// Server and Agent are the certificates that were asked for, as DER: first the newcomer's own, then those of CAs
	// between it and the root.
	Server     [][]byte          `cbor:"4,keyasint,omitempty"`
	Agent      [][]byte          `cbor:"5,keyasint,omitempty"`
	Keyring    [][]byte          `cbor:"6,keyasint,omitempty"` // encoded key-encryption keys, for a server only
	GossipKeys [][]byte          `cbor:"7,keyasint,omitempty"` // the first one encrypts, all decrypt
	Servers    []string          `cbor:"8,keyasint,omitempty"` // host:port of the servers' API
	Gossip     []string          `cbor:"9,keyasint,omitempty"` // host:port of the servers' gossip
	Labels     map[string]string `cbor:"10,keyasint,omitempty"`
	// Files says that the cluster's certificates come from a CA of the operator, so the newcomer's configuration names
	// its files, and nothing renews them. There is no keyring then.
	Files bool `cbor:"31,keyasint,omitempty"`
}

// AnswerJoin answers a newcomer, which has proved nothing yet: the token in its request must be checked, or Claim of
// its RejoinRequest. source is the address at the other end of the connection. The request is within its bounds, but
// its token, certificate and requests for certificates are not parsed. The context ends before the connection does. The
// error reaches the newcomer as the reply's Problem.
type AnswerJoin func(ctx context.Context, source net.Addr, r JoinRequest) (JoinReply, error)

// check refuses a request with a field that is out of bounds. Code: invalid.
func (r JoinRequest) check() error {
	if r.Rejoin != nil {
		if r.Token != "" || r.Known || len(r.Server)+len(r.Agent)+len(r.Address)+len(r.Version)+len(r.Labels) > 0 {
			return model.Refuse(model.CodeInvalid, "the request is that of a newcomer and that of an agent that returns").
				WithHint("send one of the two")
		}
		return r.Rejoin.check()
	}
	for _, field := range [...]struct {
		name      string
		has, most int
	}{
		{"token", len(r.Token), maxJoinToken},
		{"certificate request of the server", len(r.Server), maxJoinCSR},
		{"certificate request of the agent", len(r.Agent), maxJoinCSR},
		{"address", len(r.Address), maxJoinAddress},
		{"version", len(r.Version), maxJoinVersion},
	} {
		if field.has > field.most {
			return model.Refuse(model.CodeInvalid, "the %s of the newcomer has %d bytes, at most %d are allowed",
				field.name, field.has, field.most)
		}
	}
	switch {
	case r.Token == "":
		return model.Refuse(model.CodeInvalid, "there is no join token").
			WithHint("make one on a server with: outspan token create")
	case len(r.Server) == 0 && len(r.Agent) == 0:
		return model.Refuse(model.CodeInvalid, "the newcomer asks for no certificate").
			WithHint("ask for one as a server, as an agent or as both")
	case r.Address == "" && len(r.Server) > 0 || r.Address != "" && !validHostPort(r.Address):
		return model.Refuse(model.CodeInvalid, "the address %q of the newcomer is not host:port", model.Clip(r.Address)).
			WithHint("give an address such as 10.0.0.4:7640")
	}
	if refusal := model.CheckLabels(r.Labels); refusal != nil {
		return refusal
	}
	return nil
}

func validHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && bad == nil && n > 0
}

// writeJoin sends a message. Codes: too_large, internal. Errors of the connection are returned unchanged.
func writeJoin(w io.Writer, message any) error {
	body, err := EncodeCBOR(message)
	switch {
	case err != nil:
		return model.Refuse(model.CodeInternal, "can't encode a %T: %v", message, err)
	case len(body) > maxJoinMessage:
		return model.Refuse(model.CodeTooLarge, "a %T of %d bytes is too large, at most %d are allowed", message, len(body),
			maxJoinMessage)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)) //nolint:gosec // checked above
	return err
}

// readJoin receives a message into the value that message points to. Codes: too_large, invalid. Errors of the
// connection are returned unchanged.
func readJoin(r io.Reader, message any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxJoinMessage {
		return model.Refuse(model.CodeTooLarge, "a message of %d bytes is too large, at most %d are allowed", size,
			maxJoinMessage)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return DecodeCBOR(body, message)
}
