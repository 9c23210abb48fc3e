package linear

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// Load makes clients that send requests. Each client does one operation at a time, through a random server.
type Load struct {
	Doors   []Door
	Nodes   []string      // nodes whose labels are written
	Jobs    []string      // no name may be a prefix of another, because the API takes unique prefixes of jobs' names
	Labels  int           // number of labels of each node that are written; default 2
	Clients int           // default 8
	Think   time.Duration // longest pause of a client between two operations; default 20 ms
	Limit   time.Duration // longest time that a client waits for an answer; default 3 s
	Seed    uint64
	Name    string // prefix of every value and request id; different loads on one cluster need different names
}

// Run makes all clients work until ctx ends. It returns when all clients have finished their last operations.
func (l *Load) Run(ctx context.Context, h *History) {
	l.Labels, l.Clients = cmp.Or(l.Labels, 2), cmp.Or(l.Clients, 8)
	l.Think, l.Limit = cmp.Or(l.Think, 20*time.Millisecond), cmp.Or(l.Limit, 3*time.Second)
	var wg sync.WaitGroup
	for i := range l.Clients {
		c := &client{load: l, history: h, id: i, random: rand.New(rand.NewPCG(l.Seed, uint64(i))), at: map[Key]uint64{}}
		wg.Go(func() { c.run(ctx) })
	}
	wg.Wait()
}

// Settle must be called after Run has returned and all faults are over. It sends writes of unknown outcome again: all
// writes to jobs, and about half of the writes to labels. Then it reads every object through every server with a
// consistent read. It blocks until all requests are answered, or returns an error when ctx ends.
func (l *Load) Settle(ctx context.Context, h *History) error {
	c := &client{load: l, history: h, id: l.Clients, random: rand.New(rand.NewPCG(l.Seed, l.Seed)), at: map[Key]uint64{}}
	if err := c.resend(ctx); err != nil {
		return err
	}
	for _, door := range l.Doors {
		for _, key := range l.objects() {
			for !c.read(ctx, door, Ask{Key: key, Action: Read, Level: Consistent}, l.Limit) {
				if ctx.Err() != nil {
					return fmt.Errorf("%s did not answer a consistent read of %s: %w", door.Name, key, context.Cause(ctx))
				}
				c.pause(ctx, 50*time.Millisecond)
			}
		}
	}
	return nil
}

// resend sends writes of unknown outcome again (see Settle), each of them until its outcome is known. A write that was
// carried out before is not carried out again, because the request id is the same.
func (c *client) resend(ctx context.Context) error {
	for i, o := range c.history.open() {
		if o.Key.Kind == Register && i%2 == 0 {
			continue
		}
		w := &writing{c: c, op: o}
		for w.op.Outcome == Unknown {
			w.send(ctx, []Door{c.door()})
			if ctx.Err() != nil {
				return fmt.Errorf("no definite answer to %s: %w", o, context.Cause(ctx))
			}
			if w.op.Outcome == Unknown {
				c.pause(ctx, 50*time.Millisecond)
			}
		}
		c.history.replace(w.op)
	}
	return nil
}

// objects returns the keys of all nodes and jobs. The key of a node has no Part, because one read returns all labels.
func (l *Load) objects() []Key {
	var keys []Key
	for _, n := range l.Nodes {
		keys = append(keys, Key{Kind: Register, Name: n})
	}
	for _, j := range l.Jobs {
		keys = append(keys, Key{Kind: Job, Name: j})
	}
	return keys
}

func (l *Load) parts() []string {
	var all []string
	for i := range l.Labels {
		all = append(all, fmt.Sprintf("%s%d", l.Name, i))
	}
	return all
}

// client must be used by only one goroutine.
type client struct {
	load    *Load
	history *History
	id      int
	random  *rand.Rand
	writes  int
	at      map[Key]uint64 // for each job: index of the last change that this client knows
	last    uint64         // highest index that this client has seen in an answer to a read
}

func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.one(ctx)
		c.pause(ctx, time.Duration(c.random.Int64N(int64(c.load.Think)+1)))
	}
}

func (c *client) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (c *client) door() Door { return c.load.Doors[c.random.IntN(len(c.load.Doors))] }

// limit returns how long a client waits for an answer: usually at least half of Limit, but sometimes at most a
// twentieth of Limit, so that some answers come too late.
func (c *client) limit() time.Duration {
	if c.random.IntN(8) == 0 {
		return time.Duration(1 + c.random.Int64N(int64(c.load.Limit)/20))
	}
	return c.load.Limit/2 + time.Duration(c.random.Int64N(int64(c.load.Limit)/2))
}

// one does one random operation. It finishes the operation even if ctx ends meanwhile.
func (c *client) one(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	objects := c.load.objects()
	key := objects[c.random.IntN(len(objects))]
	switch n := c.random.IntN(20); {
	case n < 9:
		c.read(ctx, c.door(), Ask{Key: key, Action: Read, Level: Consistent}, c.limit())
	case n < 13:
		c.weaker(ctx, key)
	case key.Kind == Register:
		key.Part = c.load.parts()[c.random.IntN(c.load.Labels)]
		c.write(ctx, Ask{Key: key, Action: Write})
	case n < 15 || c.at[key] == 0:
		c.write(ctx, Ask{Key: key, Action: Write})
	default:
		if c.random.IntN(2) == 0 {
			c.read(ctx, c.door(), Ask{Key: key, Action: Read, Level: Consistent}, c.limit())
		}
		c.write(ctx, Ask{Key: key, Action: Swap, IfIndex: c.at[key]})
	}
}

func (c *client) weaker(ctx context.Context, key Key) {
	a := Ask{Key: key, Action: Read, Level: Default}
	if c.random.IntN(3) > 0 {
		a.Level = Stale
	}
	if c.random.IntN(3) == 0 {
		a.After, a.Wait = c.last, time.Duration(50+c.random.IntN(400))*time.Millisecond
	}
	c.read(ctx, c.door(), a, c.limit())
}

// read reads an object and records an answer for each of its parts. It returns false if there was no usable answer. The
// answer not_found is usable. If a consistent read does not find a job that this client has seen, read records a
// violation.
func (c *client) read(ctx context.Context, door Door, a Ask, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit+a.Wait)
	defer cancel()
	a.Door = door.Name
	begin := c.history.now()
	got, body := door.send(ctx, a)
	end := c.history.now()
	c.history.count(func(n *counts) { n.requests++ })
	if got.Outcome != Done {
		missing := strings.HasPrefix(got.Text, "404 not_found")
		if missing && c.at[a.Key] > 0 && a.Level == Consistent {
			c.history.fault("S4: %s is gone, server %s says: %s", a.Key, door.Name, got.Text)
		}
		c.history.Add(Op{c.id, begin, end, a, got})
		return missing
	}
	all, err := a.read(got, body, c.load.parts())
	if err != nil {
		c.history.fault("LIN: an answer of %s can't be read: %v: %s", door.Name, err, body)
		return false
	}
	for i, one := range all {
		if a.Key.Kind == Register {
			a.Key.Part = c.load.parts()[i]
		} else {
			c.at[a.Key] = one.At
		}
		c.history.Add(Op{c.id, begin, end, a, one})
	}
	c.last = max(c.last, got.Index)
	return true
}

// write writes a unique value through a random server, and sometimes sends the request twice at the same time. While
// the outcome is unknown, write repeats the request up to four times. Sometimes it repeats a request whose outcome is
// known. All these requests have the same request id and are recorded as one operation.
func (c *client) write(ctx context.Context, a Ask) {
	c.writes++
	a.Value = fmt.Sprintf("%s-%d-%d", c.load.Name, c.id, c.writes)
	a.Request = a.Value
	w := &writing{c: c, op: Op{Client: c.id, Begin: c.history.now(), Ask: a}}
	doors := []Door{c.door()}
	if c.random.IntN(10) == 0 {
		doors = append(doors, c.door())
	}
	w.send(ctx, doors)
	for range 4 {
		if w.op.Outcome != Unknown || c.random.IntN(4) == 0 {
			break
		}
		c.pause(ctx, time.Duration(c.random.IntN(200))*time.Millisecond)
		w.send(ctx, []Door{c.door()})
	}
	if known := w.op.Outcome == Done || w.op.Outcome == Conflict; known && c.random.IntN(7) == 0 {
		c.history.count(func(n *counts) { n.repeated++ })
		w.send(ctx, []Door{c.door()})
	}
	if w.op.Outcome == Unknown {
		w.op.End = Never
	}
	if w.op.Outcome == Done && a.Key.Kind == Job {
		c.at[a.Key] = w.op.Index
	}
	c.history.Add(w.op)
}
