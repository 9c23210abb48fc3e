package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/outspan/outspan/api"
)

// Trust are the operations on the servers and agents that join tokens admitted. They need a cluster that makes
// certificates itself; in any other cluster each has the code not_supported.
type Trust struct{ calls }

// Members returns the servers and agents that were admitted, with those that are revoked. It reads all pages.
func (t Trust) Members(ctx context.Context, o ListOptions) (List[api.TrustMember], error) {
	return list[api.TrustMember](ctx, t.calls, route("trust", "members"), o.query())
}

// AllMembers yields what Members returns, and reads each page when it is needed. If a read fails, AllMembers yields the
// error and stops.
func (t Trust) AllMembers(ctx context.Context, o ListOptions) iter.Seq2[api.TrustMember, error] {
	return each[api.TrustMember](ctx, t.calls, route("trust", "members"), o.query())
}

// RevokeNode revokes the agent of a node for ever: none of its certificates counts any more. ref is the id or the name
// of the node, or the name of an agent that has no node yet. It changes nothing else of the node. Codes: not_found;
// invalid if the reason is too long.
func (t Trust) RevokeNode(
	ctx context.Context, ref string, body api.RevokeBody, o WriteOptions,
) (Response[api.RevokeReply], error) {
	return write[api.RevokeReply](ctx, t.calls, http.MethodPost, route("nodes", ref, "revoke"), o.query(), body)
}

// RevokeServerOptions are the options of Trust.RevokeServer.
type RevokeServerOptions struct {
	WriteOptions
	// Unknown also revokes a server that the servers don't know. After a recovery they don't know a server that joined
	// after the snapshot, but its certificates are good.
	Unknown bool
	// Force first removes the server from the cluster, if it is still in it; see Members.Remove. The leader is refused. A
	// dry run does not check the removal.
	Force bool
}

// RevokeServer revokes a server for ever: none of its certificates counts any more. ref is its name, or its id while it
// is known. Codes: not_found; conflict if the server votes and is alive, or with Force if it leads or Members.Remove
// refuses it; invalid if the reason is too long. An interrupted call with Force can be repeated.
func (t Trust) RevokeServer(
	ctx context.Context, ref string, body api.RevokeBody, o RevokeServerOptions,
) (Response[api.RevokeReply], error) {
	query := o.query()
	if o.Unknown {
		query.Set("unknown", "true")
	}
	if o.Force {
		query.Set("force", "true")
	}
	return write[api.RevokeReply](ctx, t.calls, http.MethodPost, route("members", ref, "revoke"), query, body)
}

// GossipKeys returns the keys that encrypt gossip, and how far their rotation is. Codes: not_supported if the key is a
// file.
func (t Trust) GossipKeys(ctx context.Context, o ReadOptions) (Response[api.GossipKeys], error) {
	return read[api.GossipKeys](ctx, t.calls, route("trust", "gossip-keys"), o.query())
}

// RotateGossipOptions are the options of Trust.RotateGossipKey.
type RotateGossipOptions struct {
	WriteOptions
	// Force passes over members that are off. It also works on a rotation in progress, until another server leads.
	Force bool
}

// RotateGossipKey begins to replace the key that encrypts gossip. It does not wait for the end. While a rotation is in
// progress, it begins none and returns how far that one is. Codes: not_supported if the key is a file.
func (t Trust) RotateGossipKey(ctx context.Context, o RotateGossipOptions) (Response[api.GossipRotateReply], error) {
	query := o.query()
	if o.Force {
		query.Set("force", "true")
	}
	return write[api.GossipRotateReply](ctx, t.calls, http.MethodPost, route("trust", "gossip-keys", "rotate"), query, nil)
}

// Keyring returns the keys that encrypt the keys of the state, and which servers have them. The leader asks each
// server, so it takes up to 5 s if one does not answer.
func (t Trust) Keyring(ctx context.Context) (Response[api.Keyring], error) {
	return read[api.Keyring](ctx, t.calls, route("keyring"), nil)
}

// RotateKeyring makes a new key of the keyring, gives it to every server, and encrypts the keys of the state under it.
// With o.DryRun it only asks which servers could take part. It takes up to 20 s. A repeated call makes another key.
// Codes: conflict if a server does not answer or lacks a key; busy while another rotation runs; unknown if the new key
// may be in use.
func (t Trust) RotateKeyring(ctx context.Context, o WriteOptions) (Response[api.KeyringRotation], error) {
	return write[api.KeyringRotation](ctx, t.calls, http.MethodPost, route("keyring", "rotate"), o.query(), nil)
}

// PruneKeyring removes keys of the keyring that nothing needs any more from the files of all servers. With o.DryRun it
// only says which. It takes up to 10 s, and may be repeated. Codes: conflict if a server does not answer; busy while
// the keyring is rotated.
func (t Trust) PruneKeyring(ctx context.Context, o WriteOptions) (Response[api.KeyringPruning], error) {
	return write[api.KeyringPruning](ctx, t.calls, http.MethodPost, route("keyring", "prune"), o.query(), nil)
}

// KeyringExported records that an export of the keyring has these keys. Code: not_found if the state needs none of
// them.
func (t Trust) KeyringExported(
	ctx context.Context, body api.ExportedBody, o WriteOptions,
) (Response[api.Written], error) {
	return write[api.Written](ctx, t.calls, http.MethodPost, route("keyring", "exported"), o.query(), body)
}
