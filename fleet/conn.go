package fleet

import (
	"github.com/outspan/outspan/api/frame"
	"github.com/outspan/outspan/fsm"
)

const (
	ownBytes   = 32 << 10 // of a frame for one reader
	sharedRows = 1024     // in a frame for all readers of a view; if more changed, each gets frames of its own
	leastRows  = 16       // rows that a section has at least
)

// conn is one reader. p.mu of its Publisher guards it, except wake.
type conn struct {
	look  func(*fsm.State) (Sight, error)
	scope Scope
	view  *view
	wake  chan struct{} // there may be something to send
	err   error         // why the stream must end

	next        []byte // a shared frame to send
	nextDirty   dirty  // what is in it
	nextVersion uint64 // of the view's texts after it

	behind  bool // the reader needs frames of its own before it gets shared ones again
	reset   bool // the first of these frames begins a snapshot
	version uint64
	nodes   set
	groups  set
	ones    set
	buf     []byte // of the frame of its own that was made last
}

// begin makes the reader's next frames a new snapshot of its view.
func (c *conn) begin(t *table) {
	c.next, c.nextDirty = nil, dirty{}
	c.behind, c.reset, c.version = true, true, 0
	c.nodes, c.groups, c.ones = nil, nil, nil
	if !c.view.scope.Bare {
		for _, kind := range frame.Tables() {
			*c.dirtyOf(kind) = c.view.rows(t, kind)
		}
	}
	c.call()
}

// call wakes the reader's goroutine.
func (c *conn) call() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *conn) end(err error) {
	c.err = err
	c.call()
}

func (c *conn) dirtyOf(kind frame.Kind) *set {
	switch kind {
	case frame.KindNodes:
		return &c.nodes
	case frame.KindGroups:
		return &c.groups
	default:
		return &c.ones
	}
}

// offer gives the reader what its view publishes in this tick: the shared frame, or marks in its sets of dirty handles
// if it is not ready for that frame.
func (c *conn) offer() {
	v := c.view
	switch {
	case v.frame == nil && v.dirty.empty():
		return
	case v.frame != nil && c.next == nil && !c.behind:
		c.next, c.nextDirty, c.nextVersion = v.frame, v.dirty, v.version
	default:
		if c.next != nil {
			c.mark(&c.nextDirty)
			c.next, c.nextDirty, c.version = nil, dirty{}, 0
		}
		c.mark(&v.dirty)
		c.behind = true
	}
	c.call()
}

func (c *conn) mark(d *dirty) {
	for _, kind := range frame.Tables() {
		to := c.dirtyOf(kind)
		for _, h := range d.of(kind) {
			to.set(h, true)
		}
	}
}

// memory returns how many bytes the reader holds, without the frame that it shares.
func (c *conn) memory() int {
	return cap(c.buf) + 8*(cap(c.nodes)+cap(c.groups)+cap(c.ones))
}

// take returns the next frame to send, or nil. The frame is valid until the next take.
func (p *Publisher) take(c *conn) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, c.err
	case c.next != nil:
		b := c.next
		c.next, c.nextDirty, c.version = nil, dirty{}, c.nextVersion
		return b, nil
	case !c.behind:
		c.buf = nil
		return nil, nil
	}
	if c.buf == nil {
		c.buf = make([]byte, 0, ownBytes)
	}
	b := &p.builder
	b.Begin(c.buf, p.header())
	if c.reset {
		b.SetFlags(frame.FlagReset)
		c.reset = false
	}
	if c.version != c.view.version {
		b.Text(frame.KindBanner, c.view.banner)
		b.Text(frame.KindCounts, c.view.counts)
		c.version = c.view.version
	}
	if p.addDirty(b, c) {
		b.SetFlags(frame.FlagWhole)
		c.behind = false
		c.nodes, c.groups, c.ones = nil, nil, nil
	}
	c.buf = b.Finish()
	return c.buf, nil
}

// addDirty adds rows at dirty handles until the frame is full, and returns true if no dirty handle is left.
func (p *Publisher) addDirty(b *frame.Builder, c *conn) (done bool) {
	for _, kind := range frame.Tables() {
		dirty := c.dirtyOf(kind)
		for from := uint32(0); ; {
			room := (ownBytes - b.Len() - sectionBytes) / rowBytes(kind)
			rows := dirty.pick(p.handles[:0], from, max(room, 1))
			if len(rows) == 0 {
				break
			}
			if room < leastRows {
				return false
			}
			rows = filled(rows)
			p.handles = rows
			for _, h := range rows {
				dirty.set(h, false)
			}
			p.addRows(b, c.view, kind, rows)
			from = rows[len(rows)-1]
		}
	}
	return true
}

// Bounds of what a section and a row take in a frame. They count a row's share of the rows that filled adds.
const sectionBytes = 128

func rowBytes(kind frame.Kind) int {
	switch kind {
	case frame.KindNodes:
		return 2 * (6*4 + 4 + 63)
	case frame.KindGroups:
		return 2 * (4 + 4 + 127)
	default:
		return 2 * 4 * 4
	}
}

// filled adds the handles in the gaps between ascending handles, if that adds at most a third. Consecutive handles take
// no room in a frame.
func filled(rows []uint32) []uint32 {
	first, n := rows[0], len(rows)
	all := int(rows[n-1]-first) + 1
	if all == n || all > n+n/3 {
		return rows
	}
	rows = rows[:0]
	for h := range uint32(all) {
		rows = append(rows, first+h)
	}
	return rows
}
