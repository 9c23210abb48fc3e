package audit

import (
	"net/netip"
	"sync"
	"time"
)

const (
	quietPeriod = time.Minute
	quietLines  = 60 // refusals of one subject or source with one code that have lines of their own in each period

	// Pairs of subject and code with a count of their own; further pairs share one count for each code. There are not many
	// more subjects than that, because somebody has let each of them in.
	quietSubjects = 16384
	quietSources  = 128 // the same for the sources of requests that prove nothing
	quietUnproved = 300 // lines about all requests that prove nothing, in each period
)

// quiet limits the lines about refusals, which callers without rights could send without end. Requests that prove
// nothing are limited apart: however many there are, they hide no subject. The zero value is ready to use. Safe for
// concurrent use.
type quiet struct {
	mu       sync.Mutex
	proved   counts
	unproved counts
	newcomer counts // of Log.Admit
	failed   counts // of Log.Handshake
}

type counts struct {
	lines int // of all keys
	seen  map[quietKey]*quietCount
}

type quietKey struct{ who, code string }

type quietCount struct {
	lines, more int
	last        Line
}

// take reports whether a refusal gets a line of its own. Otherwise it is counted.
func (q *quiet) take(line Line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if line.Subject != "" {
		return q.proved.take(quietKey{line.Subject, line.Code}, line, quietSubjects, 0)
	}
	return q.unproved.take(quietKey{source(line.Peer), unprovedCode(line.Code)}, line, quietSources, quietUnproved)
}

// admit is take for the line about a newcomer that joins, or that the call of a subject begins. These lines have a
// limit of their own, so refusals of other callers can't use it up.
func (q *quiet) admit(line Line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := quietKey{line.Subject, line.Code}
	if line.Subject == "" {
		key.who = source(line.Peer)
	}
	return q.newcomer.take(key, line, quietSubjects, 0)
}

// handshake is take for a handshake that failed.
func (q *quiet) handshake(line Line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := quietKey{who: source(line.Peer)}
	if one := q.failed.seen[key]; one != nil { // it has its line
		one.more++
		one.last.Operation = line.Operation
		return false
	}
	return q.failed.take(key, line, quietSources, quietUnproved)
}

// take counts a line. 0 in most means that all keys together have no limit.
func (c *counts) take(key quietKey, line Line, keys, most int) bool {
	if c.seen == nil {
		*c = counts{seen: map[quietKey]*quietCount{}}
	}
	count, ok := c.seen[key]
	if !ok && len(c.seen) >= keys {
		key = quietKey{code: key.code}
		count, ok = c.seen[key]
	}
	if !ok {
		count = &quietCount{last: Line{Stage: Counted, Outcome: Refused, Code: line.Code}}
		if line.Subject != "" {
			count.last.Subject = key.who
		} else {
			count.last.Peer = key.who
		}
		c.seen[key] = count
	}
	if count.lines < quietLines && (most == 0 || c.lines < most) {
		count.lines++
		c.lines++
		return true
	}
	count.more++
	count.last.Operation = line.Operation
	return false
}

// source returns the address of a peer without its port, which would be another one for each connection. Of IPv6, it
// returns the network of 64 bits, in which a machine can have any address. Texts of other kinds are unchanged.
func source(peer string) string {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return peer
	}
	address := at.Addr().Unmap().WithZone("")
	if network, err := address.Prefix(64); err == nil {
		return network.String() // only IPv6 has as many bits
	}
	return address.String()
}

// unprovedCode returns the code under which a refusal of a request that proves nothing is counted. A source with too
// many refusals gets rate_limited instead of unauthenticated, so both count as unauthenticated.
func unprovedCode(code string) string {
	if code == "rate_limited" {
		return "unauthenticated"
	}
	return code
}

// next begins a period, and returns a line for each count of the one before.
func (q *quiet) next() (lines []Line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range [...]*counts{&q.proved, &q.unproved, &q.newcomer, &q.failed} {
		for _, count := range c.seen {
			if count.more > 0 {
				count.last.Count = count.more
				lines = append(lines, count.last)
			}
		}
		*c = counts{}
	}
	return lines
}
