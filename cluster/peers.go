package cluster

import (
	"context"
	"fmt"

	"github.com/outspan/outspan/model"
)

// Asker sends questions to other servers over mTLS. The certificates of both servers have the role server. body and
// answer are CBOR that an Asker need not understand. AskPeer must return when ctx ends; ctx always has a deadline.
// transport.PeerClient is the production Asker.
type Asker interface {
	AskPeer(ctx context.Context, address, question string, body []byte) (answer []byte, err error)
}

const (
	questionTick   = "tick"
	questionAges   = "ages"
	questionStates = "states"
	questionDigest = "digest"
	questionKeys   = "keys"
)

// tick is the question that the leader sends to every other server about once a second.
type tick struct {
	Leader model.ServerID `cbor:"1,keyasint"`
	Term   uint64         `cbor:"2,keyasint"`
	Now    model.Time     `cbor:"3,keyasint"` // cluster time at the leader
	State  uint64         `cbor:"4,keyasint"` // index of the leader's state
	Heard  uint64         `cbor:"5,keyasint"` // mark of the newest reply that the leader had when it read State
	// Wall is the median of the servers' wall clocks, Unix ms, or 0 from an older version.
	Wall int64 `cbor:"6,keyasint,omitempty"`
}

// tickReply is a server's answer to a tick.
type tickReply struct {
	Server    model.ServerID `cbor:"1,keyasint"`
	LastIndex uint64         `cbor:"2,keyasint"` // of its log
	State     uint64         `cbor:"3,keyasint"` // index of its state
	Installs  uint64         `cbor:"4,keyasint"` // number of snapshots that it has restored since it started
	Mark      uint64         `cbor:"5,keyasint"` // identifies this reply in later ticks
	Wall      int64          `cbor:"6,keyasint"` // its wall clock, Unix ms; 0 if it runs an older version
	Condition Condition      `cbor:"7,keyasint"`
}

// ageQuery asks a server how long ago it last heard each of some nodes.
type ageQuery struct {
	Leader model.ServerID `cbor:"1,keyasint"`
	Nodes  []nodeEpoch    `cbor:"2,keyasint"`
	// If GiveUp is true, the server gives up each of these epochs whose node it has not heard for Threshold: it renews no
	// more leases of the epoch. A server that was paused or short of CPU time gives up nothing.
	GiveUp    bool           `cbor:"3,keyasint,omitempty"`
	Threshold model.Duration `cbor:"4,keyasint"`
}

// nodeEpoch is one registration of a node.
type nodeEpoch struct {
	Node  model.NodeID `cbor:"1,keyasint"`
	Epoch uint64       `cbor:"2,keyasint"`
}

type ageReply struct {
	Server model.ServerID `cbor:"1,keyasint"`
	Calm   bool           `cbor:"2,keyasint"`
	Ages   []nodeAge      `cbor:"3,keyasint"`
}

type nodeAge struct {
	Node  model.NodeID   `cbor:"1,keyasint"`
	Age   model.Duration `cbor:"2,keyasint"`
	Heard bool           `cbor:"3,keyasint"`
}

// AnswerPeer answers a question of another server. The caller must have checked that the other server's certificate has
// the role server. AnswerPeer blocks only to compute a digest and to write given-up epochs to the disk. Codes: invalid
// if body is damaged; not_found if this version does not know the question.
func (s *Server) AnswerPeer(ctx context.Context, question string, body []byte) (answer []byte, err error) {
	switch question {
	case questionTick:
		return answerWith(s.peerCodec, body, s.answerTick)
	case questionAges:
		return answerWith(s.peerCodec, body, s.answerAges)
	case questionKeys:
		return answerWith(s.peerCodec, body, s.answerKeys)
	case questionStates:
		return answerWith(s.peerCodec, body, s.compare.answerStates)
	case questionDigest:
		return answerWith(s.peerCodec, body, func(q digestQuery) digestReply { return s.compare.answerDigest(ctx, q) })
	}
	return nil, model.Refuse(model.CodeNotFound, "there is no question %q between servers", question)
}

func answerWith[Q, A any](c codec, body []byte, fn func(Q) A) ([]byte, error) {
	var q Q
	if err := c.dec.Unmarshal(body, &q); err != nil {
		return nil, model.Refuse(model.CodeInvalid, "the question is damaged: %v", err)
	}
	return c.enc.Marshal(fn(q))
}

func askPeer[A any](ctx context.Context, s *Server, address, question string, q any) (a A, err error) {
	body, err := s.peerCodec.enc.Marshal(q)
	if err != nil {
		return a, err
	}
	answer, err := s.cfg.Asker.AskPeer(ctx, address, question, body)
	if err != nil {
		return a, err
	}
	if err := s.peerCodec.dec.Unmarshal(answer, &a); err != nil {
		return a, fmt.Errorf("answer of %s to %s: %w", address, question, err)
	}
	return a, nil
}

// answerAges returns how long ago this server last heard each node of q. If q.GiveUp is true, it also gives up epochs.
// If it can't write these epochs to disk, it sets Calm to false, so that the leader does not take the answer as
// agreement.
func (s *Server) answerAges(q ageQuery) ageReply {
	out := ageReply{Server: s.dir.id, Calm: s.calmEnough()}
	var agreed []nodeEpoch
	for _, n := range q.Nodes {
		age := s.seen.hearts.Age(n.Node)
		out.Ages = append(out.Ages, nodeAge{n.Node, model.Duration(age.Since.Milliseconds()), age.Heard})
		if q.GiveUp && out.Calm && age.Since >= durationOf(q.Threshold) {
			agreed = append(agreed, n)
		}
	}
	if err := s.giveUp(agreed); err != nil {
		s.log.Error("can't write down which nodes are given up, so this server agrees to none of them",
			"nodes", len(agreed), "error", err)
		out.Calm = false
	}
	return out
}

func (r ageReply) opinion() Opinion {
	o := Opinion{Server: r.Server, Calm: r.Calm, Ages: make(map[model.NodeID]Age, len(r.Ages))}
	for _, a := range r.Ages {
		o.Ages[a.Node] = Age{Since: durationOf(a.Age), Heard: a.Heard}
	}
	return o
}
