package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Unit is the unit of a value.
type Unit string

// The units of the table.
const (
	PerSecond Unit = "/s"
	Seconds   Unit = "s"
	Millis    Unit = "ms"
	MillisCPU Unit = "ms of a core"
	MiB       Unit = "MiB"
	Percent   Unit = "% of a core"
	Count     Unit = ""
	Times     Unit = "x"
)

// Goal is a bound for the value of a figure: a lower bound if AtLeast is true, otherwise an upper bound. The zero Goal
// means that the figure has no goal.
type Goal struct {
	Value   float64 `json:"value"`
	AtLeast bool    `json:"at_least"`
	Set     bool    `json:"set"`
}

func atLeast(v float64) Goal { return Goal{Value: v, AtLeast: true, Set: true} }
func below(v float64) Goal   { return Goal{Value: v, Set: true} }

// Met reports whether v is within the bound. It returns true if there is no goal.
func (g Goal) Met(v float64) bool {
	return !g.Set || g.AtLeast && v >= g.Value || !g.AtLeast && v <= g.Value
}

// Limit is a value to compare a figure with, usually what this machine did in the same run without outspan. The zero
// Limit means that the figure has no limit.
type Limit struct {
	Value float64 `json:"value"`
	Of    string  `json:"of"`
}

// Figure is one line of the table.
type Figure struct {
	Case  string  `json:"case"`
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  Unit    `json:"unit"`
	Goal  Goal    `json:"goal"`
	Limit Limit   `json:"limit"`
	Note  string  `json:"note,omitempty"`
}

// Ratio returns the value divided by the limit, or 0 if there is no limit.
func (f Figure) Ratio() float64 {
	if f.Limit.Value == 0 {
		return 0
	}
	return f.Value / f.Limit.Value
}

func (f Figure) cells() []string {
	goal, limit, ratio := "-", "-", "-"
	if f.Goal.Set {
		goal = map[bool]string{true: ">= ", false: "<= "}[f.Goal.AtLeast] + number(f.Goal.Value)
		if !f.Goal.Met(f.Value) {
			goal += " no"
		} else {
			goal += " yes"
		}
	}
	if f.Limit.Value != 0 {
		limit = number(f.Limit.Value) + " " + f.Limit.Of
		ratio = fmt.Sprintf("%.0f %%", 100*f.Ratio())
	}
	return []string{f.Case, f.What, number(f.Value), string(f.Unit), goal, ratio, limit, f.Note}
}

// number formats a value with two decimals, or with fewer if it is 10 or more.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a == 0:
		return "0"
	}
	return fmt.Sprintf("%.2f", v)
}

func table(figures []Figure) string {
	rows := [][]string{{"CASE", "WHAT", "VALUE", "UNIT", "GOAL", "OF LIMIT", "LIMIT IN THIS RUN", "NOTE"}}
	for _, f := range figures {
		rows = append(rows, f.cells())
	}
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		var line strings.Builder
		for i, cell := range r {
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// quantile returns the q-quantile of the times: the median if q is 0.5, the maximum if q is 1. It returns 0 if there
// are no times.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
