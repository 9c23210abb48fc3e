package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
)

// Surveys is what a pass finds by the indexes of the state, and what a scan of every row finds: they must be equal.
func Surveys(in Input) (indexed, scanned string) {
	p := newPass(in)
	p.survey()
	scan := newPass(in)
	scan.scanEverything()
	return p.found(), scan.found()
}

func (p *pass) found() string {
	text := fmt.Sprintf("kills %v\nmarked %v\npolicy nodes", p.kills, p.marked)
	for _, n := range p.policyNodes() {
		text += " " + string(n.ID)
	}
	for _, g := range p.groups {
		text += fmt.Sprintf("\ngroup %s at version %d", g.id, g.row.Version)
	}
	return text
}

// scanEverything is the survey in the plainest words.
func (p *pass) scanEverything() {
	s := p.state()
	dirty := map[fsm.GroupID]bool{}
	for _, inst := range s.Instances.All() {
		if inst.Ready() && !inst.Eviction.Requested || inst.Terminal() {
			continue
		}
		dirty[inst.Group] = true
		if inst.Desired == fsm.DesiredDraining {
			p.kills = append(p.kills, inst.ID)
		}
		if inst.Eviction.Requested {
			p.marked = append(p.marked, inst.ID)
		}
	}
	for _, n := range s.Nodes.All() {
		cordoned := n.Intent == fsm.IntentCordoned && s.Settings.EvictOn == fsm.EvictOnCordon
		if n.Placed.Instances == 0 || n.Intent != fsm.IntentDraining && n.Intent != fsm.IntentDisabled && !cordoned {
			continue
		}
		for inst := range s.InstancesOn(n.ID) {
			dirty[inst.Group] = true
		}
	}
	for id, row := range s.Groups.All() {
		d := p.deploymentOf(id)
		rolls := d != nil && !d.Status.Ended()
		short := row.Ready != row.Count || row.Running != row.Count
		if row.Role == fsm.RoleSystem && row.Count > 0 {
			short = p.systemUnsettled(row)
		}
		if dirty[id] || rolls || short {
			p.groups = append(p.groups, &groupView{id: id, row: row})
		}
	}
}
