package httpapi

import "github.com/outspan/outspan/api"

// audit adds a server that can't write its audit log.
func (p *problems) audit(m *ServerEntry) {
	if m.Own.Audit != "" {
		p.add(api.ProblemAudit, "server/"+m.Name, "make room for it; see: outspan config show, and the log of that server",
			"it can't write its audit log: %s", m.Own.Audit)
	}
}
