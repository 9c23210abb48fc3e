package trust

import (
	"context"
	"strings"
	"sync"

	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// proveQuestion asks a server to prove that it has keys of the keyring.
type proveQuestion struct {
	Challenge []byte       `cbor:"1,keyasint"` // a keyring.Challenge that is used once
	Keys      []keyring.ID `cbor:"2,keyasint"`
}

// proveReply has a keyring.Proof for each key of the question, in its order. It is empty for a key that the server
// lacks.
type proveReply struct {
	Proofs [][]byte `cbor:"1,keyasint"`
}

// MayVote is cluster.Config.MayVote: it refuses a vote to the server with this name at address, unless the server
// proves now that it has every key that encrypts a data key of the state. It blocks until the server has answered, for
// at most 5 s. While the state has no data key, it accepts every server. Codes: conflict.
func (e *Engine) MayVote(ctx context.Context, name, address string) error {
	return e.keyring.mayVote(ctx, name, address)
}

func (k *serverKeyring) mayVote(ctx context.Context, name, address string) error {
	ids := needed(k.store.Current())
	if len(ids) == 0 {
		return nil
	}
	lacks, err := k.askProof(ctx, transport.ServerInfo{Name: name, APIAddress: address}, ids)
	if err != nil {
		return model.Refuse(model.CodeConflict, "server %s did not prove that it has the keys of the keyring: %s", name,
			model.Reason(err)).
			WithHint("it gets no vote until it has; look at its log")
	}
	if len(lacks) > 0 {
		return model.Refuse(model.CodeConflict, "keyring of server %s is incomplete: it lacks %s", name, joinIDs(lacks)).
			WithHint("it gets no vote until it has them; it asks the other servers for them, and its log says why it does not " +
				"get them; or on it: outspan server keyring import")
	}
	return nil
}

func joinIDs(ids []keyring.ID) string {
	var texts []string
	for _, id := range ids {
		texts = append(texts, string(id))
	}
	return strings.Join(texts, ", ")
}

// askProof has a server prove that it has keys, and returns those that it lacks. It blocks for at most keyTime. Codes:
// not_found if this server lacks one of the keys; forbidden for a wrong proof; invalid for a damaged answer; those of
// the question.
func (k *serverKeyring) askProof(ctx context.Context, server transport.ServerInfo,
	ids []keyring.ID) (lacks []keyring.ID, err error) {
	ring, err := k.get()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, keyTime)
	defer cancel()
	challenge := keyring.NewChallenge()
	var reply proveReply
	if err := ask(ctx, k.peers, server, questionProve, proveQuestion{challenge[:], ids}, &reply); err != nil {
		return nil, err
	}
	if len(reply.Proofs) != len(ids) {
		return nil, model.Refuse(model.CodeInvalid, "server %s gave %d proofs for %d keys", server.Name, len(reply.Proofs),
			len(ids))
	}
	for i, proof := range reply.Proofs {
		if len(proof) == 0 {
			lacks = append(lacks, ids[i])
			continue
		}
		if len(proof) != len(keyring.Proof{}) {
			return nil, model.Refuse(model.CodeInvalid, "server %s gave a proof of %d bytes", server.Name, len(proof))
		}
		if err := ring.Check(ids[i], server.Name, challenge, keyring.Proof(proof)); err != nil {
			return nil, err
		}
	}
	return lacks, nil
}

// prove answers a proveQuestion. Codes: forbidden, member_revoked, invalid.
func (k *serverKeyring) prove(ctx context.Context, q proveQuestion) (proveReply, error) {
	if _, err := askingServer(ctx, k.store); err != nil {
		return proveReply{}, err
	}
	if len(q.Challenge) != len(keyring.Challenge{}) || len(q.Keys) > keyring.MaxKeys {
		return proveReply{}, model.Refuse(model.CodeInvalid, "a challenge of %d bytes for %d keys", len(q.Challenge),
			len(q.Keys))
	}
	ring := k.ring.Load()
	reply := proveReply{Proofs: make([][]byte, len(q.Keys))}
	for i, id := range q.Keys {
		if ring == nil {
			break
		}
		proof, err := ring.Prove(id, k.name, keyring.Challenge(q.Challenge))
		if err == nil { // otherwise this server lacks the key
			reply.Proofs[i] = proof[:]
		}
	}
	return reply, nil
}

// standing is what a server's keyring has of the keys that it was asked about.
type standing struct {
	server transport.ServerInfo
	lacks  []keyring.ID
	err    error // why the server proved nothing
}

// standings asks servers about keys, at most maxKeyServers at the same time. It blocks until all have answered or
// failed.
func (k *serverKeyring) standings(ctx context.Context, servers []transport.ServerInfo, ids []keyring.ID) []standing {
	all := make([]standing, len(servers))
	atOnce := make(chan struct{}, maxKeyServers)
	var wg sync.WaitGroup
	for i, server := range servers {
		wg.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			lacks, err := k.askProof(ctx, server, ids)
			all[i] = standing{server, lacks, err}
		})
	}
	wg.Wait()
	return all
}
