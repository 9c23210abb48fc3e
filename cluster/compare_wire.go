package cluster

import (
	"context"
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// statesQuery asks which states a server has.
type statesQuery struct {
	Server model.ServerID `cbor:"1,keyasint"`
}

type statesReply struct {
	Server model.ServerID `cbor:"1,keyasint"`
	Held   []stateKey     `cbor:"2,keyasint"` // oldest first
}

// digestQuery asks for the digest of a state, and carries the asking server's digest of the same state.
type digestQuery struct {
	Server model.ServerID    `cbor:"1,keyasint"`
	Key    stateKey          `cbor:"2,keyasint"`
	Digest string            `cbor:"3,keyasint"`
	Tables []fsm.TableDigest `cbor:"4,keyasint"`
	// Judge asks the other server to check its state with fsm.Check, and to compare itself with all voters soon, even if
	// the two digests are equal.
	Judge bool `cbor:"5,keyasint,omitempty"`
}

type digestReply struct {
	Server model.ServerID    `cbor:"1,keyasint"`
	Found  bool              `cbor:"2,keyasint"` // false if the server has no such state or couldn't compute the digest
	Digest string            `cbor:"3,keyasint"`
	Tables []fsm.TableDigest `cbor:"4,keyasint"`
	// Contradiction is the text of fsm.Check's error. It is empty if the check passed, or if Judge was not set.
	Contradiction string `cbor:"5,keyasint,omitempty"`
}

// answerStates returns the keys of the states that this server has. It keeps the current state for offerFor, because
// the other server may ask for its digest next.
func (c *comparer) answerStates(statesQuery) statesReply {
	out := statesReply{Server: c.s.dir.id}
	for _, s := range c.past.hold(c.s.cfg.Machine.State()) {
		out.Held = append(out.Held, keyOf(s))
	}
	return out
}

// answerDigest returns this server's digest of the state that q names. It blocks while the digest is computed. It also
// compares this digest with the one in q at once, because the asking server may be gone when this server makes its next
// comparison.
func (c *comparer) answerDigest(ctx context.Context, q digestQuery) digestReply {
	out := digestReply{Server: c.s.dir.id}
	state, ok := c.past.find(q.Key, c.s.cfg.Machine.State())
	if !ok {
		return out
	}
	own, err := c.digests.of(ctx, state)
	if err != nil {
		return out
	}
	out.Found, out.Digest, out.Tables = true, own.digest, own.tables
	if q.Judge {
		out.Contradiction = contradiction(state)
	}
	news := q.Digest != own.digest && c.noteDifference(q.Server, q.Key, own, stateSums{digest: q.Digest, tables: q.Tables})
	if news || q.Judge {
		c.soon()
	}
	return out
}

func (c *comparer) askStates(ctx context.Context, id model.ServerID) ([]stateKey, error) {
	ctx, cancel := context.WithTimeout(ctx, statesTimeout)
	defer cancel()
	reply, err := askPeer[statesReply](ctx, c.s, c.s.addressOf(id), questionStates, statesQuery{Server: c.s.dir.id})
	if err == nil && reply.Server != id {
		err = fmt.Errorf("at its address is now %s", reply.Server)
	}
	return reply.Held, err
}

func (c *comparer) askDigest(ctx context.Context, id model.ServerID, q digestQuery) (stateSums, error) {
	ctx, cancel := context.WithTimeout(ctx, digestTimeout)
	defer cancel()
	reply, err := askPeer[digestReply](ctx, c.s, c.s.addressOf(id), questionDigest, q)
	switch {
	case err != nil:
		return stateSums{}, err
	case reply.Server != id:
		return stateSums{}, fmt.Errorf("at its address is now %s", reply.Server)
	case !reply.Found || reply.Digest == "":
		return stateSums{}, errNoState
	}
	return stateSums{reply.Digest, reply.Tables, reply.Contradiction}, nil
}
