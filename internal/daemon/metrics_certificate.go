package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// certificateEnd collects the metric that shows when the process's certificates expire, by role. After a reload, the
// metric shows the new certificates.
type certificateEnd struct {
	desc  *prometheus.Desc
	creds map[pki.Role]*transport.Credentials
	page  *transport.PageCertificate // nil if the process serves no page
}

func newCertificateEnd() *certificateEnd {
	const help = "When the certificate of this process ends, in Unix time, by its role; page is for browsers."
	return &certificateEnd{
		desc:  prometheus.NewDesc("outspan_certificate_end_timestamp_seconds", help, []string{"role"}, nil),
		creds: map[pki.Role]*transport.Credentials{},
	}
}

// Describe implements prometheus.Collector.
func (c *certificateEnd) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *certificateEnd) Collect(out chan<- prometheus.Metric) {
	for role, creds := range c.creds {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(creds.NotAfter().Unix()), string(role))
	}
	if c.page != nil {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(c.page.NotAfter().Unix()), "page")
	}
}
