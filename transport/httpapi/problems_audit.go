package httpapi

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/api"
)

// ownWords adds what a server says of itself: that it can't write its audit log, or that nobody can sign in through it.
func (p *problems) ownWords(m *ServerEntry) {
	if m.Own.Audit != "" {
		p.add(api.ProblemAudit, "server/"+m.Name, "make room for it; see: outspan config show, and the log of that server",
			"it can't write its audit log: %s", m.Own.Audit)
	}
	if m.Own.SignIn != "" {
		p.add(api.ProblemProvider, "server/"+m.Name, "look at the provider, and compare auth { oidc } of that server; "+
			"it asks again by itself. Certificates, access tokens and earlier logins go on",
			"nobody can sign in: %s", m.Own.SignIn)
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
