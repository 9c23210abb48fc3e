package series

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Questions of one server to another.
const (
	questionCopy = "series-copy" // what the other one has sampled
	questionRead = "series-read" // a Query
)

const (
	askTime     = 5 * time.Second // for one question
	copyValues  = 64 << 10        // in one answer, at most; more only if one object has more
	copyAnswers = 200             // of one peer for one table, at most
)

// The tables of a Recorder.
const (
	tableFixed uint8 = iota
	tableJobs
	tableNodes
)

// copyQuery asks for the replicated values of steps, from From up to before To, of the objects after After.
type copyQuery struct {
	Table uint8  `cbor:"1,keyasint"`
	From  int64  `cbor:"2,keyasint"`
	To    int64  `cbor:"3,keyasint"`
	After string `cbor:"4,keyasint,omitempty"`
}

// copyReply has, for each key, the values of each name: 4 bytes of each step, as IEEE 754 in big-endian order.
type copyReply struct {
	From   int64    `cbor:"1,keyasint"`
	To     int64    `cbor:"2,keyasint"`
	Names  []string `cbor:"3,keyasint"`
	Keys   []string `cbor:"4,keyasint"` // "" for the fixed table
	Values []byte   `cbor:"5,keyasint"`
	Marks  []mark   `cbor:"6,keyasint"`
}

var codec = func() cbor.DecMode {
	mode, err := cbor.DecOptions{MaxNestedLevels: 8, MaxArrayElements: 1 << 17, MaxMapPairs: 32,
		IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

// AnswerPeer answers a question of another server. known is false if it is not one of package series.
func (r *Recorder) AnswerPeer(question string, body []byte) (answer []byte, known bool, err error) {
	switch question {
	case questionCopy:
		var q copyQuery
		if err := codec.Unmarshal(body, &q); err != nil {
			return nil, true, damaged(err)
		}
		answer, err = cbor.Marshal(r.copyOf(q))
	case questionRead:
		var q Query
		if err := codec.Unmarshal(body, &q); err != nil {
			return nil, true, damaged(err)
		}
		got, refusal := r.Read(q)
		if refusal != nil {
			return nil, true, refusal
		}
		answer, err = cbor.Marshal(got)
	default:
		return nil, false, nil
	}
	return answer, true, err
}

func damaged(err error) error {
	return model.Refuse(model.CodeInvalid, "the question is damaged: %v", err)
}

// ReadOf answers a query with the series of another server, and of this one if it has the name. It waits for at most
// 5 s. Codes: those of Read; not_found if there is no such server; unavailable.
func (r *Recorder) ReadOf(ctx context.Context, server string, q Query) (a api.Series, err error) {
	if server == "" || server == r.cfg.Server {
		return r.Read(q)
	}
	var names []string
	for _, p := range r.cfg.Peers() {
		if p.Name == server {
			err = r.ask(ctx, p, questionRead, q, &a)
			return a, err
		}
		names = append(names, p.Name)
	}
	return a, model.NoSuch("server", server, append(names, r.cfg.Server))
}

func (r *Recorder) ask(ctx context.Context, p Peer, question string, q, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	body, err := cbor.Marshal(q)
	if err != nil {
		return err
	}
	answer, err := r.cfg.Ask(ctx, p.Address, question, body)
	if err != nil {
		return err
	}
	if err := codec.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("answer of %s to %s: %w", p.Name, question, err)
	}
	return nil
}

// copyOf answers a copyQuery.
func (r *Recorder) copyOf(q copyQuery) copyReply {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, all, from := fixedLayout, defs[:], r.oneFixed
	switch q.Table {
	case tableJobs:
		l, all, from = jobLayout, ofJob[:], func(after string, n int) ([]string, []*ring) {
			return some(&r.jobs, after, n)
		}
	case tableNodes:
		l, all, from = nodeLayout, ofNode[:], func(after string, n int) ([]string, []*ring) {
			return some(&r.nodes, after, n)
		}
	}
	a := copyReply{From: q.From, To: q.To, Marks: slices.Clone(r.marks)}
	whole := int64(l.blocks * l.block)
	a.From = max(a.From, 0)
	a.To = max(a.From, min(a.To, a.From+min(whole, int64(copyValues/len(all)))))
	var columns []int
	for i, d := range all {
		if !d.Local {
			columns, a.Names = append(columns, i), append(a.Names, d.Name)
		}
	}
	one := max(1, len(columns)*int(a.To-a.From))
	keys, rings := from(q.After, max(1, copyValues/one))
	a.Keys = keys
	a.Values = make([]byte, 0, 4*one*len(keys))
	for _, ring := range rings {
		for _, column := range columns {
			for slot := a.From; slot < a.To; slot++ {
				a.Values = binary.BigEndian.AppendUint32(a.Values, math.Float32bits(ring.get(slot, column)))
			}
		}
	}
	return a
}

// oneFixed returns the ring of the cluster as the only object of its table. r.mu must be held.
func (r *Recorder) oneFixed(string, int) ([]string, []*ring) { return []string{""}, []*ring{&r.fixed} }

// some returns the next n objects of a table.
func some[K ~string](b *board[K], after string, n int) (keys []string, rings []*ring) {
	for _, k := range b.after(K(after), n) {
		keys, rings = append(keys, string(k)), append(rings, b.rings[k])
	}
	return keys, rings
}

// fill asks the other servers, one after the other, for the replicated values since a slot that are not known here. It
// returns false if there are others and none answered.
func (r *Recorder) fill(ctx context.Context, since int64) bool {
	peers := r.cfg.Peers()
	answered := len(peers) == 0
	for _, p := range peers {
		err := r.fillFrom(ctx, p, since)
		if refusal, ok := errors.AsType[*model.Error](err); ok && refusal.Code == model.CodeNotFound {
			err = nil // an older version, which keeps no series
		}
		if err != nil {
			r.cfg.Log.Debug("another server does not tell its series", "server", p.Name, "error", err)
			continue
		}
		if answered = true; r.wholeSince(since) {
			break
		}
	}
	return answered
}

// wholeSince reports whether the replicated state is known at each step since a slot.
func (r *Recorder) wholeSince(slot int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; slot <= r.newest; slot++ {
		if isUnknown(r.fixed.get(slot, nodesActive)) {
			return false
		}
	}
	return true
}

// fillFrom fills in what one server knows.
func (r *Recorder) fillFrom(ctx context.Context, p Peer, since int64) error {
	begin := fixedLayout.begin(since)
	for _, one := range []struct {
		table uint8
		layout
	}{{tableFixed, fixedLayout}, {tableJobs, jobLayout}, {tableNodes, nodeLayout}} {
		end := one.slot(r.cfg.Wall()) + 1
		q := copyQuery{Table: one.table, From: max(one.slot(begin), end-int64(one.blocks*one.block)), To: end}
		for range copyAnswers {
			var a copyReply
			if err := r.ask(ctx, p, questionCopy, q, &a); err != nil {
				return err
			}
			if len(a.Keys) == 0 || a.To <= a.From || a.From < q.From || a.To > q.To {
				break
			}
			if err := r.take(one.table, a); err != nil {
				return fmt.Errorf("answer of %s: %w", p.Name, err)
			}
			if one.table == tableFixed {
				q.From = a.To
			} else {
				q.After = a.Keys[len(a.Keys)-1]
			}
			if q.From >= q.To {
				break
			}
		}
	}
	return nil
}

// take fills in what an answer knows and this server does not.
func (r *Recorder) take(table uint8, a copyReply) error {
	steps := int(a.To - a.From)
	if len(a.Values) != 4*steps*len(a.Names)*len(a.Keys) {
		return fmt.Errorf("%d bytes for %d steps of %d series of %d objects", len(a.Values), steps, len(a.Names), len(a.Keys))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range a.Marks {
		if m.Term > 0 {
			r.addMark(mark{At: m.At, Term: m.Term, Server: strings.Clone(m.Server)})
		}
	}
	rest := a.Values
	for _, key := range a.Keys {
		into, all := &r.fixed, defs[:]
		switch table {
		case tableJobs:
			into, all = r.jobs.rings[model.JobName(key)], ofJob[:]
		case tableNodes:
			into, all = r.nodes.rings[model.NodeID(key)], ofNode[:]
		}
		for _, name := range a.Names {
			values := rest[:4*steps]
			rest = rest[4*steps:]
			column := columnOf(all, name)
			if into == nil || column < 0 || all[column].Local {
				continue
			}
			for i := range steps {
				v := math.Float32frombits(binary.BigEndian.Uint32(values[4*i:]))
				into.fill(a.From+int64(i), column, v)
			}
		}
	}
	return nil
}

// columnOf returns the place of a series in a list, or -1.
func columnOf(all []Def, name string) int {
	for i, d := range all {
		if d.Name == name {
			return i
		}
	}
	return -1
}
