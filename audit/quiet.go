package audit

import (
	"net"
	"sync"
	"time"
)

const (
	quietPeriod = time.Minute
	quietLines  = 60   // refusals of one subject with one code that have lines of their own in each period
	quietKeys   = 1024 // subjects and codes that are told apart; further ones share one count for each code
)

// quiet limits the lines about refusals, which callers without rights could send without end. The zero value is ready
// to use. Safe for concurrent use.
type quiet struct {
	mu   sync.Mutex
	seen map[quietKey]*quietCount
}

type quietKey struct{ subject, code string }

type quietCount struct {
	lines, more int
	last        Line
}

// take reports whether a refusal gets a line of its own. Otherwise it is counted.
func (q *quiet) take(line Line) bool {
	key := quietKey{line.Subject, line.Code}
	if host, _, err := net.SplitHostPort(line.Peer); line.Subject == "" && err == nil {
		key.subject = host // a port would be another one for each connection
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.seen == nil {
		q.seen = map[quietKey]*quietCount{}
	}
	count, ok := q.seen[key]
	if !ok && len(q.seen) >= quietKeys {
		key = quietKey{code: line.Code}
		count, ok = q.seen[key]
	}
	if !ok {
		count = &quietCount{last: Line{Stage: Counted, Subject: key.subject, Outcome: Refused, Code: line.Code}}
		q.seen[key] = count
	}
	if count.lines < quietLines {
		count.lines++
		return true
	}
	count.more++
	count.last.Operation = line.Operation
	return false
}

// next begins a period, and returns a line for each count of the one before.
func (q *quiet) next() (lines []Line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, count := range q.seen {
		if count.more > 0 {
			count.last.Count = count.more
			lines = append(lines, count.last)
		}
	}
	q.seen = nil
	return lines
}
