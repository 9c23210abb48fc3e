package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

const (
	maxLine     = 64 << 10               // bytes; a longer line is cut into pieces
	lookForMore = 100 * time.Millisecond // pause while the logs have no new lines; bounds the delay of logs -f

	// lineTime is the format of the time that is put before a line: UTC, with a fixed length. noTime stands for an unknown
	// time.
	lineTime = "2006-01-02T15:04:05.000000Z"
	noTime   = "-"
)

// lineSource cuts one stream of an instance into lines.
type lineSource struct {
	log  Log
	buf  []byte
	from int   // where the first line in buf begins; the bytes before it have been returned
	have int   // where the bytes in buf end
	at   int64 // offset in the log of the byte at from
	end  int   // length of the first line in buf; 0 while that line is not complete
	fail error // error from reading the log, other than io.EOF

	lastRead  int // value of lineMerge.reads after the last read that returned bytes
	lastEmpty int // value of lineMerge.reads after the last read that returned no bytes
}

// fill reads until buf has a line, nothing more can be read now, or the log fails. A full buf is a line. If over is
// true, the log has ended, and the bytes that are left are a line too. fill adds 1 to reads for each read.
func (s *lineSource) fill(over bool, reads *int) {
	for s.fail == nil && !s.cut() {
		if s.from > 0 { // once per read and not once per line, which would cost seconds for megabytes of short lines
			s.from, s.have = 0, copy(s.buf, s.buf[s.from:s.have])
		}
		if s.have == len(s.buf) {
			s.end = s.have
			return
		}
		n, err := s.log.Read(s.buf[s.have:])
		s.have += n
		if *reads++; n > 0 {
			s.lastRead = *reads
		} else {
			s.lastEmpty = *reads
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			s.fail = err
		case n == 0 && over:
			s.end = s.have
			return
		case n == 0:
			return
		}
	}
}

// cut finds the first line in buf, without a read. It returns false if buf has no complete line.
func (s *lineSource) cut() bool {
	if s.end == 0 {
		s.end = bytes.IndexByte(s.buf[s.from:s.have], '\n') + 1
	}
	return s.end > 0
}

// take removes the first line from buf, which is complete, and returns it. The line is valid until the next fill.
func (s *lineSource) take() []byte {
	line := s.buf[s.from : s.from+s.end]
	s.from, s.at, s.end = s.from+s.end, s.at+int64(len(line)), 0
	return line
}

// lineMerge sends the lines of an instance's streams in the order in which they were written.
type lineMerge struct {
	sources []*lineSource
	query   logQuery
	out     *lineWriter
	over    func() bool // reports whether nothing more will be written
	reads   int         // number of reads of all logs so far
	held    []byte      // lines that will be sent together
}

func newLineMerge(logs []Log, q logQuery, out *lineWriter, over func() bool) *lineMerge {
	m := &lineMerge{query: q, out: out, over: over}
	for _, l := range logs {
		m.sources = append(m.sources, &lineSource{log: l, buf: make([]byte, maxLine), at: l.Offset()})
	}
	return m
}

// run sends the lines, and reports whether it sent all of them. If query.follow is set, it waits for new lines until
// the instance has ended. It returns false if a log fails, the client is gone, or ctx ends.
func (m *lineMerge) run(ctx context.Context) bool {
	for ctx.Err() == nil {
		over := !m.query.follow || m.over() // called before the reads, so that the last lines are not missed
		next := m.oldest(over)
		switch {
		case next != nil:
			if !m.show(next) {
				return false
			}
		case m.failed() || !m.send():
			return false
		case over:
			return true
		default:
			sleep(ctx, lookForMore, nil)
		}
	}
	return false
}

// oldest returns the source whose next line was written first, or nil if no source has a line now.
func (m *lineMerge) oldest(over bool) *lineSource {
	begin := m.reads // if no source has a line, all are read once
	for _, s := range m.sources {
		s.cut() // or the others would be read again for each line of this one
	}
	for looked := true; looked; {
		looked = false
		newest, found := 0, false
		for _, s := range m.sources {
			if s.end > 0 {
				newest, found = max(newest, s.lastRead), true
			}
		}
		if !found {
			newest = begin
		}
		for _, s := range m.sources {
			// A source that was empty may have got a line before the newest line of the others was written. So it is read again
			// after the others. If it is still empty, any line that it gets later is newer than the lines of the others.
			if s.end == 0 && s.fail == nil && s.lastEmpty <= newest {
				s.fill(over, &m.reads)
				looked = true
			}
		}
	}
	var next *lineSource
	var first time.Time
	for _, s := range m.sources {
		if s.end == 0 {
			continue
		}
		if at := s.log.WrittenAt(s.at); next == nil || at.Before(first) {
			next, first = s, at
		}
	}
	return next
}

func (m *lineMerge) failed() bool {
	for _, s := range m.sources {
		if s.fail != nil {
			return true
		}
	}
	return false
}

// show takes the next line of s and adds it to the held lines, unless the line is older than query.since. It sends the
// held lines once they have maxLine bytes. It returns false if the client is gone.
func (m *lineMerge) show(s *lineSource) bool {
	at := s.log.WrittenAt(s.at)
	line := s.take()
	if at.Before(m.query.since) {
		return true
	}
	if m.query.times {
		stamp := noTime
		if !at.IsZero() {
			stamp = at.UTC().Format(lineTime)
		}
		m.held = append(append(m.held, stamp...), ' ')
	}
	m.held = append(m.held, line...)
	return len(m.held) < maxLine || m.send()
}

// send writes the held lines to the client. It returns false if the client is gone.
func (m *lineMerge) send() bool {
	if len(m.held) == 0 {
		return true
	}
	err := m.out.write(m.held)
	m.held = m.held[:0]
	return err == nil
}

// parseSince parses text as a time (RFC 3339), or as a duration before now. It returns false if text is neither of
// these.
func parseSince(text string, now time.Time) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, true
	}
	d, err := model.ParseDuration(text)
	if err != nil || d < 0 || d == model.Forever {
		return time.Time{}, false
	}
	return now.Add(-time.Duration(d) * time.Millisecond), true
}

// endOf returns a function that reports whether the instance writes no more lines, because its program has ended and
// will not be started again.
func (s *logServer) endOf(id model.InstanceID, task Task) func() bool {
	return func() bool {
		select {
		case <-task.Done():
		default:
			return false
		}
		m := s.agent.supervisors.member(id)
		if m == nil {
			return true
		}
		if t := m.current(); t != task {
			task = t
			return false
		}
		status, _ := s.agent.shared.reports.status(id)
		return status.Observed == model.ObservedFailed || status.Observed == model.ObservedStopped
	}
}

// logStreams returns the streams for a value of the query parameter "stream". "" and "both" mean stdout and stderr. ok
// is false for an unknown value.
func logStreams(name string) (streams []driver.Stream, ok bool) {
	if name == "" || name == "both" {
		return []driver.Stream{driver.Stdout, driver.Stderr}, true
	}
	return []driver.Stream{driver.Stream(name)}, driver.Stream(name).Valid()
}
