package httpapi

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/api"
)

// audit adds a server that can't write its audit log.
func (p *problems) audit(m *ServerEntry) {
	if m.Own.Audit != "" {
		p.add(api.ProblemAudit, "server/"+m.Name, "make room for it; see: outspan config show, and the log of that server",
			"it can't write its audit log: %s", m.Own.Audit)
	}
}

// auditDiffers adds servers of which some have an audit log, or must record everything, and others not. Then what a
// person does is recorded or not, depending on the server that is asked.
func (p *problems) auditDiffers() {
	modes, named := map[string]bool{}, []string{}
	for i := range p.members {
		if m := &p.members[i]; m.Own.AuditMode != "" {
			modes[m.Own.AuditMode] = true
			named = append(named, m.Name+" "+m.Own.AuditMode)
		}
	}
	if len(modes) > 1 {
		slices.Sort(named)
		p.add(api.ProblemAuditDiffers, "cluster", "give all servers the same block audit, and restart them one by one",
			"the servers differ in their audit logs: %s", strings.Join(named, "; "))
	}
}
