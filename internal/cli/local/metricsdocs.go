package local

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// WriteMetricsDocs writes the reference of the collectors' metrics to path.
func WriteMetricsDocs(path string, collectors ...prometheus.Collector) error {
	var lines []string
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() {
			c.Describe(descs)
			close(descs)
		}()
		for d := range descs {
			if line := metricLine(d.String()); line != "" {
				lines = append(lines, line)
			}
		}
	}
	slices.Sort(lines)
	text := "# Metrics\n\nMade from the program by `make docs`. Served at `/metrics` of every server (unless `telemetry " +
		"{ prometheus = false }`). Every series is there from the start, at 0; those of an object go with it.\n\n" +
		"Agents serve theirs in the same way: `outspan_certificate_end_timestamp_seconds`, and what instances on their " +
		"nodes use, by group (`outspan_group_cpu_seconds_total`, `outspan_group_memory_bytes`, " +
		"`outspan_group_processes`). Add these up over the nodes. A number that the kernel does not tell has no " +
		"series.\n\n" +
		"| metric | labels | meaning |\n|---|---|---|\n" + strings.Join(slices.Compact(lines), "") +
		"\nBeside them stand those of the Go runtime (`go_*`), the process (`process_*`), raft (`raft_*`) and gossip " +
		"(`memberlist_*`).\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the reference: %w", err)
	}
	return nil
}

// metricLine returns the row of a metric in the table. It parses the string of the metric's description, because
// Prometheus gives no other access to the parts of a description. It returns "" for a string of another form.
func metricLine(desc string) string {
	m :=
		regexp.MustCompile(
			`^Desc\{fqName: "([^"]+)", help: "(.*?)"(?:, unit: ".*")?, constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`).
			FindStringSubmatch(desc)
	if m == nil {
		return ""
	}
	return "| `" + m[1] + "` | " + strings.ReplaceAll(m[3], ",", ", ") + " | " +
		strings.ReplaceAll(m[2], "|", "\\|") + " |\n"
}
