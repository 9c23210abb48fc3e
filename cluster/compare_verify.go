package cluster

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Verdict is the result of a verification, for one server or for all of them.
type Verdict string

// The verdicts. VerdictUndecided and VerdictIncomplete apply only to a whole verification, VerdictBehind and
// VerdictUnreached only to one server.
const (
	VerdictEqual      Verdict = "equal"
	VerdictDiffers    Verdict = "differs"
	VerdictUndecided  Verdict = "undecided"  // servers differ, and no state has a majority of the voters
	VerdictIncomplete Verdict = "incomplete" // the servers that were compared are equal, but some were not compared
	VerdictBehind     Verdict = "behind"     // the server lacks the compared state, or its program knows another format
	VerdictUnreached  Verdict = "unreachable"
)

// Valid reports whether v is one of the constants above.
func (v Verdict) Valid() bool {
	return slices.Contains([]Verdict{VerdictEqual, VerdictDiffers, VerdictUndecided, VerdictIncomplete,
		VerdictBehind, VerdictUnreached}, v)
}

// String implements fmt.Stringer.
func (v Verdict) String() string { return string(v) }

// Verification is the result of comparing the states of all servers. One of the servers makes it.
type Verification struct {
	Verdict Verdict
	Index   uint64 // of the states that were compared
	Format  uint16 // of those states
	Digest  string // the digest that a majority of the voters has; empty if no digest has a majority
	Servers []VerifiedServer
}

// VerifiedServer is one server of a Verification.
type VerifiedServer struct {
	ServerStatus
	Verdict Verdict
	// Index is the index of the compared state. If the server was not compared, Index is that of its newest state, or of
	// the state in which it last differed. 0 means that no index is known.
	Index  uint64
	Digest string // empty if the server was not compared
	Detail string // why it was not compared, how its state contradicts itself, or when it differed
	// Tables are the tables in which the server's state differs from the majority's or, if no state has a majority, from
	// that of the server that ran Verify. Field A of each table is about the server's state, field B about the other one.
	Tables []fsm.TableDifference
}

// Verify compares the states of all servers now, including servers without a vote. Each server also checks its own
// state with fsm.Check. A server that Verify asks for its digest also compares itself with the voters soon afterwards.
// Verify waits at most patience for servers that lag, and then until the digests are computed. It writes nothing.
// Codes: no_leader while this server belongs to no cluster; timeout if ctx ends.
func (s *Server) Verify(ctx context.Context, patience time.Duration) (Verification, error) {
	var servers []ServerStatus
	var others []model.ServerID
	for _, one := range s.Servers() {
		if !one.Member {
			continue
		}
		servers = append(servers, one)
		if one.ID != s.dir.id {
			others = append(others, one.ID)
		}
	}
	if len(servers) == 0 {
		return Verification{}, model.Refuse(model.CodeNoLeader, "this server belongs to no cluster yet").
			WithHint("ask another server, or see: outspan server members")
	}
	c := s.compare
	m, err := c.meet(ctx, others, patience, true)
	if err != nil {
		return Verification{}, model.Refuse(model.CodeTimeout, "the servers could not be compared in time: %v", err).
			WithHint("try again")
	}
	judged := m.comparison(s.dir.id, c.voters())
	c.remember(m, judged)
	if judged.Result().Differs() {
		c.soon()
	}
	return c.verification(m, judged, servers), nil
}

func (c *comparer) verification(m meeting, judged Comparison, servers []ServerStatus) Verification {
	majority, decided := judged.Majority()
	v := Verification{Verdict: VerdictEqual, Index: m.key.Index, Format: m.key.Format, Digest: majority}
	right := m.own()
	if decided && right.digest != majority {
		right = m.sums[judged.agreeing(majority)[0]]
	}
	differ := len(judged.others(right.digest)) > 0
	for _, one := range servers {
		r := c.verified(m, one, right, differ && !decided)
		switch {
		case r.Verdict == VerdictEqual || v.Verdict == VerdictDiffers || v.Verdict == VerdictUndecided:
		case r.Verdict == VerdictDiffers && r.Digest != "" && !decided:
			v.Verdict = VerdictUndecided
		case r.Verdict == VerdictDiffers:
			v.Verdict = VerdictDiffers
		default:
			v.Verdict = VerdictIncomplete
		}
		v.Servers = append(v.Servers, r)
	}
	return v
}

// verified returns one server's part of a Verification. right contains the digests of the majority's state, or of this
// server's state if no state has a majority. split is true if servers differ and no state has a majority.
func (c *comparer) verified(m meeting, one ServerStatus, right stateSums, split bool) VerifiedServer {
	r := VerifiedServer{ServerStatus: one}
	sums, compared := m.sums[one.ID]
	held, answered := m.held[one.ID]
	switch {
	case compared:
		r.Verdict, r.Index, r.Digest = VerdictEqual, m.key.Index, sums.digest
		if sums.digest != right.digest || split {
			r.Verdict, r.Tables = VerdictDiffers, fsm.DifferentTables(sums.tables, right.tables)
		}
		if sums.contradiction != "" {
			r.Verdict, r.Detail = VerdictDiffers, "its state contradicts itself: "+sums.contradiction
		}
	case answered:
		r.Verdict, r.Detail = VerdictBehind, "it has no state of index "+decimal(m.key.Index)
		if len(held) > 0 {
			newest := held[len(held)-1]
			r.Index = newest.Index
			if newest.Program != m.key.Program {
				r.Detail = "its program knows formats up to " + decimal(uint64(newest.Program)) + ", this one's up to " +
					decimal(uint64(m.key.Program))
			}
		}
	default:
		r.Verdict, r.Detail = VerdictUnreached, reasonOf(m.errs[one.ID])
		if d, ok := c.difference(one.ID); ok {
			r.Verdict, r.Index = VerdictDiffers, d.Index
			r.Detail = "it had another state at index " + decimal(d.Index) + " on " + d.At.UTC().
				Format(time.RFC3339) + " and does not answer now"
		}
	}
	return r
}

// Differing returns the members whose state differed from this server's when the two were last compared. It does not
// block.
func (s *Server) Differing() map[model.ServerID]Difference {
	out := map[model.ServerID]Difference{}
	for _, one := range s.servers() {
		if d, ok := s.compare.difference(model.ServerID(one.ID)); ok {
			out[model.ServerID(one.ID)] = d
		}
	}
	return out
}

// contradiction runs fsm.Check, which reads every row, and returns the error as text of at most contradictionBytes. It
// returns an empty string if the check passes.
func contradiction(s fsm.State) string {
	err := fsm.Check(s)
	if err == nil {
		return ""
	}
	text := strings.ToValidUTF8(err.Error(), "")
	return strings.ToValidUTF8(text[:min(len(text), contradictionBytes)], "")
}

const contradictionBytes = 1000

func reasonOf(err error) string {
	var known *model.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, &model.Error{Code: model.CodeNotFound}):
		return "its program is too old to be compared"
	case errors.As(err, &known):
		return known.Message
	}
	return err.Error()
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
