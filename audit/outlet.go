package audit

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// outlet writes lines to one sink, from a queue of its own.
type outlet struct {
	cfg     *Config
	sink    Sink
	decides bool // its lost lines count; see Config.Sinks
	queue   chan item
	reopen  chan struct{}

	mu      sync.Mutex
	failing string // why the last line could not be written; "" if it could
	untold  int    // lines that were lost since the last line was written
	size    int    // of the longest of them
}

// item is an encoded line. done gets what came of it, if somebody waits for it.
type item struct {
	line []byte
	done chan error
}

func newOutlet(cfg *Config, sink Sink, decides bool) *outlet {
	return &outlet{cfg: cfg, sink: sink, decides: decides, queue: make(chan item, maxQueue),
		reopen: make(chan struct{}, 1)}
}

func (o *outlet) whyFailing() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failing
}

// record puts an encoded line into the queue. If the queue is full, the line is lost and counted.
func (o *outlet) record(line []byte) {
	select {
	case o.queue <- item{line: line}:
	default:
		o.lose(1, 0, "lines come faster than they can be written")
	}
}

// lose counts lines that are not written, the longest of which has the given size.
func (o *outlet) lose(lines, size int, reason string) {
	o.mu.Lock()
	first := o.failing == ""
	o.failing = reason
	o.untold += lines
	o.size = max(o.size, size)
	o.mu.Unlock()
	if o.decides {
		o.cfg.Lost(lines)
	}
	if first && o.decides {
		o.cfg.Logger.Error("the audit log can't be written", "error", reason)
	} else if first {
		o.cfg.Logger.Error("the audit log can't be written to one of its destinations", "error", reason)
	}
}

// serve writes lines until stop is closed, and then those that are left.
func (o *outlet) serve(stop <-chan struct{}) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case one := <-o.queue:
			o.write(one)
		case <-o.reopen:
			if err := o.sink.Reopen(); err != nil {
				o.lose(0, 0, err.Error())
			}
		case <-look.C:
			o.tellLost(true)
		case <-stop:
			for len(o.queue) > 0 {
				o.write(<-o.queue)
			}
			o.tellLost(false)
			_ = o.sink.Close() // its lines are written
			return
		}
	}
}

// write writes a line and those that wait after it.
func (o *outlet) write(first item) {
	batch, size := []item{first}, len(first.line)
	for size < maxBatch && len(o.queue) > 0 {
		one := <-o.queue
		batch, size = append(batch, one), size+len(one.line)
	}
	lines, told := o.lostLine(false)
	waits, longest := o.whyFailing() != "", 0 // a line after lost ones is synced
	for _, one := range batch {
		lines = append(lines, one.line...)
		waits, longest = waits || one.done != nil, max(longest, len(one.line))
	}
	err := o.put(lines, told, waits)
	if err != nil {
		o.lose(len(batch), longest, err.Error())
	} else if o.decides {
		o.cfg.Wrote(len(batch))
	}
	for _, one := range batch {
		if one.done != nil {
			one.done <- err
		}
	}
}

// put writes lines to the sink. They say how many lines were lost; told is that number.
func (o *outlet) put(lines []byte, told int, sync bool) error {
	err := o.sink.Write(lines)
	if err == nil && sync {
		err = o.sink.Sync()
	}
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.untold -= told
	if o.untold == 0 && o.failing != "" {
		o.failing, o.size = "", 0
		o.cfg.Logger.Info("the audit log is written again")
	}
	return nil
}

// lostLine returns a line with the number of lost lines, or nothing. If long is set, blanks make it as long as the
// longest of them, so it fits only where that one would.
func (o *outlet) lostLine(long bool) (line []byte, lost int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.untold == 0 {
		return nil, 0
	}
	line = o.cfg.encode(Line{Stage: Lost, Count: o.untold})
	if n := o.size - len(line); long && n > 0 {
		line = append(append(line[:len(line)-1], bytes.Repeat([]byte(" "), n)...), '\n')
	}
	return line, o.untold
}

// tellLost writes how many lines were lost, and syncs it. So the log works again by itself also while nobody calls. See
// lostLine for long.
func (o *outlet) tellLost(long bool) {
	if line, lost := o.lostLine(long); lost > 0 {
		if err := o.put(line, lost, true); err != nil {
			o.lose(0, 0, err.Error())
		}
	}
}

// plain is a Sink that writes to a stream.
type plain struct{ w io.WriteCloser }

func (p plain) Write(lines []byte) error {
	_, err := p.w.Write(lines)
	return err
}

func (p plain) Sync() error   { return nil }
func (p plain) Reopen() error { return nil }
func (p plain) Close() error  { return p.w.Close() }
