package series

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Bounds of one answer.
const (
	maxLength = 1440   // values of a column
	maxValues = 20_000 // of all columns
	usual     = 720    // values of a column, unless the question says the step
)

// Query says what to read. Names, which may be empty, are those of Defs, or if Job or Node is set, those of JobDefs or
// NodeDefs. An answer has the steps that touch the time from From to To. A Step of 0 means a suitable one.
type Query struct {
	Names []string      `cbor:"1,keyasint,omitempty"`
	Job   model.JobName `cbor:"2,keyasint,omitempty"`
	Node  model.NodeID  `cbor:"3,keyasint,omitempty"`
	From  time.Time     `cbor:"4,keyasint"`
	To    time.Time     `cbor:"5,keyasint"`
	Step  time.Duration `cbor:"6,keyasint,omitempty"`
}

// Select returns the series that a query names, or all that it can name. Code: invalid.
func (q Query) Select() ([]Def, error) {
	all := defs[:]
	switch {
	case q.Job != "":
		all = ofJob[:]
	case q.Node != "":
		all = ofNode[:]
	}
	if len(q.Names) == 0 {
		return slices.Clone(all), nil
	}
	var chosen []Def
	for _, name := range q.Names {
		at := columnOf(all, name)
		switch {
		case at < 0:
			var known []string
			for _, d := range all {
				known = append(known, d.Name)
			}
			return nil, model.Refuse(model.CodeInvalid, "there is no series %.64q", name).
				WithHint("use some of: %s", strings.Join(known, ", "))
		case columnOf(chosen, name) >= 0:
			return nil, model.Refuse(model.CodeInvalid, "the series %s is named twice", name)
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

// of returns the ring of a query, and the list of its columns. If nothing is kept of the job or node, the ring is
// empty, and note says what is kept. r.mu must be held.
func (r *Recorder) of(q Query) (of *ring, all []Def, note string) {
	switch {
	case q.Job != "":
		if of = r.jobs.rings[q.Job]; of == nil {
			of = &ring{layout: jobLayout}
			note = fmt.Sprintf("This server keeps no figures of the job. It keeps those of the %d largest jobs, "+
				"one a minute.", jobsKept)
		}
		return of, ofJob[:], note
	case q.Node != "":
		if of = r.nodes.rings[q.Node]; of == nil {
			of = &ring{layout: nodeLayout}
			note = fmt.Sprintf("This server keeps no figures of the node. It keeps those of %d nodes, "+
				"one each two minutes.", nodesKept)
		}
		return of, ofNode[:], note
	}
	return &r.fixed, defs[:], ""
}

// Read answers a query. If nothing is kept of the job or node, no value is known, and the answer has a note. Code:
// invalid.
func (r *Recorder) Read(q Query) (api.Series, error) {
	chosen, err := q.Select()
	if err != nil {
		return api.Series{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ring, all, note := r.of(q)
	step, err := q.step(ring.layout, len(chosen))
	if err != nil {
		return api.Series{}, err
	}
	wide := layout{step: step}
	first, end := wide.slot(q.From), wide.slot(q.To)+1
	n := int(end - first)
	a := api.Series{Server: r.cfg.Server, From: wide.begin(first), Step: model.Duration(step.Milliseconds()), Length: n,
		Note: note, Items: make([]api.SeriesColumn, 0, len(chosen)), Marks: []api.SeriesMark{}}
	if r.newest > 0 {
		newest := fixedLayout.begin(r.newest)
		a.Newest = &newest
	}
	per := int64(step / ring.step)
	for _, d := range chosen {
		known, values := make([]float32, n), make([]*float32, n)
		for i := range known {
			at := (first + int64(i)) * per
			if v := ring.over(at, at+per, columnOf(all, d.Name), d.peak); !isUnknown(v) {
				known[i] = v
				values[i] = &known[i]
			}
		}
		a.Items = append(a.Items, api.SeriesColumn{Name: d.Name, Unit: d.Unit, Local: d.Local, Help: d.Help, Values: values})
	}
	for _, m := range r.marks {
		if at := time.UnixMilli(m.At).UTC(); !at.Before(a.From) && at.Before(wide.begin(end)) {
			a.Marks = append(a.Marks, api.SeriesMark{Time: at, Term: m.Term, Server: m.Server})
		}
	}
	return a, nil
}

// step returns the step of the answer to a query for a number of columns. Code: invalid.
func (q Query) step(l layout, columns int) (time.Duration, error) {
	if !q.From.Before(q.To) {
		return 0, model.Refuse(model.CodeInvalid, "from must be before to")
	}
	day := l.step * time.Duration(l.blocks*l.block)
	if q.To.Sub(q.From) > day {
		return 0, model.Refuse(model.CodeInvalid, "from and to are more than %s apart", day).
			WithHint("no server keeps more: ask for less, such as from=1h")
	}
	most := min(maxLength, maxValues/columns)
	length := func(step time.Duration) int {
		l := layout{step: step}
		return int(l.slot(q.To) - l.slot(q.From) + 1)
	}
	step := q.Step
	if step == 0 {
		for step = l.step; length(step) > min(usual, most); {
			step = wider(step)
		}
	}
	switch {
	case step < l.step || step%l.step != 0 || step > day:
		return 0, model.Refuse(model.CodeInvalid, "step must be a multiple of %s, at most a day", l.step)
	case length(step) > most:
		return 0, model.Refuse(model.CodeInvalid, "that would be %d values of each of %d series, at most %d", length(step),
			columns, most).WithHint("ask for a longer step, a shorter time, or fewer names")
	}
	return step, nil
}

// wider returns a step that is somewhat longer: a multiple of the shorter one that divides an hour, or whole hours.
func wider(step time.Duration) time.Duration {
	for _, one := range [...]time.Duration{20 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute,
		12 * time.Minute, time.Hour} {
		if one > step && one%step == 0 {
			return one
		}
	}
	return 2 * step
}
