package sim

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// tries is the most times that a client sends one request. Attempts without a leader are not counted.
const tries = 6

// request is one write of a person. Repeated sends use the same id.
type request struct {
	id       model.RequestID
	name     string
	groups   [][]fsm.Command
	tries    int
	answered bool
	refused  *model.Error // last refusal in the answer; nil if no group was refused
	index    uint64
}

// clients sends the requests of all people, and keeps them to compare their answers with the log.
type clients struct {
	w    *world
	all  []*request
	byID map[model.RequestID]*request
}

func newClients(w *world) *clients { return &clients{w: w, byID: map[model.RequestID]*request{}} }

// ask sends the commands as one request, with each command in its own group.
func (c *clients) ask(name string, commands ...fsm.Command) {
	var groups [][]fsm.Command
	for _, command := range commands {
		groups = append(groups, []fsm.Command{command})
	}
	r := &request{id: model.RequestID(fmt.Sprintf("r%d", len(c.all)+1)), name: name, groups: groups}
	c.all = append(c.all, r)
	c.byID[r.id] = r
	c.w.trace.say("  asks %s: %s", r.id, name)
	c.try(r)
	if c.w.chance.IntN(25) == 0 { // an impatient client sends the same request twice
		c.w.after(between(c.w.chance, 0, 20), func() { c.try(r) })
	}
}

func (c *clients) try(r *request) {
	if r.answered || r.tries >= tries {
		return
	}
	r.tries++
	e := c.w.entry("cli:alice")
	e.Request, e.Body, e.Groups = r.id, r.name, r.groups
	if r.tries > 1 {
		c.w.counts[CountRetries]++
	}
	ok := c.w.log.propose(&proposal{entry: e, done: func(o outcome) { c.answer(r, o) }})
	if !ok {
		r.tries--
		c.again(r)
	}
}

// answer takes the outcome of one try. If the outcome is unknown, or the answer is lost, the request is tried again.
func (c *clients) answer(r *request, o outcome) {
	if r.answered {
		return
	}
	if !o.known || c.w.chance.IntN(50) == 0 {
		c.w.counts[CountUnknown]++
		c.again(r)
		return
	}
	r.answered, r.index = true, o.results[0].Index
	for _, result := range o.results {
		if result.Refusal != nil {
			r.refused = result.Refusal
		}
	}
	c.w.judge.checkAnswer(r)
	if r.refused != nil {
		c.w.counts[CountRefused]++
		c.w.trace.say("  %s %s: refused, %v", r.id, r.name, r.refused)
	} else {
		c.w.counts[CountAccepted]++
	}
}

// again tries the request again after a while. Sometimes the person gives up instead.
func (c *clients) again(r *request) {
	if r.tries > 0 && c.w.chance.IntN(8) == 0 {
		r.tries = tries
		return
	}
	c.w.after(between(c.w.chance, 50, 2500), func() { c.try(r) })
}
