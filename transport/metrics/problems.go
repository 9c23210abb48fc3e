package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/transport/httpapi"
)

// Machine is what a server knows of its own machine.
type Machine struct {
	FreeBytes, TotalBytes int64     // of the disk of the server's data directory
	Saved                 time.Time // when somebody last saved a snapshot from this server; zero means never
}

// problemGauges describes the number of problems, and the values that some problems depend on.
type problemGauges struct{ problems, free, total, saved *prometheus.Desc }

func newProblemGauges() problemGauges {
	return problemGauges{
		problems: desc("problems", "Problems that status of this server shows, by kind; some only the leader knows.", "code"),
		free:     desc("disk_free_bytes", "Free bytes on the disk of this server's data directory, its ballast not counted."),
		total:    desc("disk_total_bytes", "Size of the disk of this server's data directory."),
		saved: desc("snapshot_saved_timestamp_seconds",
			"When a snapshot was last saved from this server, in Unix time; 0: never."),
	}
}

func (g problemGauges) describe(out chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{g.problems, g.free, g.total, g.saved} {
		out <- d
	}
}

func (s *scrape) problems(g problemGauges, cfg Config) {
	var counts map[api.ProblemCode]int
	if cfg.Problems != nil {
		counts = cfg.Problems()
	}
	for _, code := range httpapi.ProblemCodes() {
		s.gauge(g.problems, float64(counts[code]), string(code))
	}
	var m Machine
	if cfg.Machine != nil {
		m = cfg.Machine()
	}
	s.gauge(g.free, float64(m.FreeBytes))
	s.gauge(g.total, float64(m.TotalBytes))
	saved := 0.0
	if !m.Saved.IsZero() {
		saved = float64(m.Saved.Unix())
	}
	s.gauge(g.saved, saved)
}
