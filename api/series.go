package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Series are figures of the last day, in columns of equal length. Value i of a column is that of the time from + i*step
// to from + (i+1)*step.
type Series struct {
	Server string         `json:"server" doc:"whose samples these are"`
	From   time.Time      `json:"from"`
	Step   model.Duration `json:"step"`
	Length int            `json:"length" doc:"values of each column"`
	Newest *time.Time     `json:"newest" doc:"when this server sampled last; null: not since it started"`
	Note   string         `json:"note,omitempty" doc:"why no value is known of a job or node"`
	Items  []SeriesColumn `json:"items"`
	Marks  []SeriesMark   `json:"marks" doc:"elections within that time, oldest first"`
}

// SeriesColumn is one series.
type SeriesColumn struct {
	Name   string     `json:"name"`
	Unit   string     `json:"unit" enum:",bytes,shares,seconds,per_second" doc:"empty: a number; shares: thousandths of a core"`
	Local  bool       `json:"local" doc:"it is about the server that sampled it; otherwise about the cluster"`
	Help   string     `json:"help"`
	Values []*float32 `json:"values" doc:"null: not known"`
}

// SeriesMark is an election: from that time on a server led.
type SeriesMark struct {
	Time   time.Time `json:"time"`
	Term   uint64    `json:"term"`
	Server string    `json:"server" doc:"name of the server that leads since then"`
}
