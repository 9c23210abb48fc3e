package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// excluded counts the excluded nodes by the code of the filter that excluded them.
type excluded []model.Excluded

func (e *excluded) add(code model.Code, nodes int) {
	for i := range *e {
		if (*e)[i].Code == code {
			(*e)[i].Nodes += nodes
			return
		}
	}
	*e = append(*e, model.Excluded{Code: code, Nodes: nodes})
}

// rank orders codes by how close a node came to being chosen. Filters run in order, so a node that a later filter
// excluded came closer. The code with the highest rank is shown to people. Any other code has rank -1.
func rank(code model.Code) int {
	return slices.Index([]model.Code{model.CodeNoNodes, model.CodeNoRuntime, model.CodeNoNetwork,
		model.CodeRuntimeDown, model.CodeConstraint, model.CodeVolumeNoNode,
		model.CodeVolumeOffline, model.CodeVolumeInUse, model.CodeAntiAffinity, model.CodeReplicaEvicting,
		model.CodeImagePull, model.CodeImagePulling, model.CodeNoPorts, model.CodeNoMemory}, code)
}

// main returns a code without rank if there is one, because it is not about a node, so no other node would help. It
// returns the code with the highest rank otherwise, and CodeNoNodes for an empty list.
func (e excluded) main() model.Code {
	best := model.CodeNoNodes
	for _, x := range e {
		if rank(x.Code) < 0 {
			return x.Code
		}
		if rank(x.Code) > rank(best) {
			best = x.Code
		}
	}
	return best
}

func (e excluded) sum() (nodes int) {
	for _, x := range e {
		nodes += x.Nodes
	}
	return nodes
}

// words describes how many nodes each filter excluded, in order of rank. It counts nodes that take no instances at all
// by their condition, such as draining.
func (p *pass) words(f *field, e excluded) string {
	sorted, all := slices.Clone(e), e.sum()
	slices.SortFunc(sorted, func(a, b model.Excluded) int { return rank(a.Code) - rank(b.Code) })
	var parts []string
	for _, x := range sorted {
		if x.Code == model.CodeNoNodes {
			parts = append(parts, p.candidates().closed(f.detours, x.Nodes)...)
		} else {
			parts = append(parts, exclusion(x.Code, x.Nodes))
		}
	}
	switch {
	case all == 0:
		return "there are no nodes"
	case all == 1:
		return "the only node " + strings.TrimPrefix(parts[0], "1 ")
	case len(parts) == 1:
		return "all " + strings.Replace(parts[0], " ", " nodes ", 1)
	}
	return fmt.Sprintf("all %d nodes are excluded: %s", all, strings.Join(parts, ", "))
}

// exclusion returns a phrase about the nodes that a filter excluded, such as "3 have too little memory".
func exclusion(code model.Code, nodes int) string {
	words := map[model.Code][2]string{
		model.CodeNoRuntime: {"has no container runtime", "have no container runtime"},
		model.CodeNoNetwork: {"can't give a container a network of its own",
			"can't give a container a network of its own"},
		model.CodeRuntimeDown: {"has a container runtime that does not answer",
			"have a container runtime that does not answer"},
		model.CodeConstraint:      {"does not meet its constraints", "do not meet its constraints"},
		model.CodeVolumeNoNode:    {"has no copy of its volume", "have no copy of its volume"},
		model.CodeAntiAffinity:    {"is kept apart from others of its group", "are kept apart from others of its group"},
		model.CodeReplicaEvicting: {"builds a copy already", "build a copy already"},
		model.CodeImagePull:       {"could not pull its image", "could not pull its image"},
		model.CodeImagePulling:    {"pulls too many images already", "pull too many images already"},
		model.CodeNoPorts:         {"has no free port for it", "have no free port for it"},
		model.CodeNoMemory:        {"has too little memory", "have too little memory"},
	}[code]
	switch {
	case words[0] == "":
		return fmt.Sprintf("%d %s", nodes, code)
	case nodes == 1:
		return "1 " + words[0]
	}
	return fmt.Sprintf("%d %s", nodes, words[1])
}

// closed describes the nodes that take no instances, with a phrase for each condition, such as "2 are draining". If
// detours is true, nodes that only wait for their turn in a drain are not among them. If the parameter nodes is not
// their number, because another filter excluded some of them, closed returns one phrase for all.
func (t *nodeTable) closed(detours bool, nodes int) []string {
	counts, all := map[string]int{}, 0
	for _, v := range t.views {
		if v.refusal != nil || v.detour && !detours {
			counts[closedBy(v.node)]++
			all++
		}
	}
	if all != nodes {
		counts = map[string]int{"closed to new instances": nodes}
	}
	parts := make([]string, 0, len(counts))
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		verb := "are"
		if counts[word] == 1 {
			verb = "is"
		}
		parts = append(parts, fmt.Sprintf("%d %s %s", counts[word], verb, word))
	}
	return parts
}

// closedBy returns why a node takes no instances, in words that fit one node or many.
func closedBy(n *fsm.Node) string {
	switch state := n.State(); {
	case state != model.NodeActive:
		return string(state)
	case n.Return.Recovering || n.Restore.InventoryOwed:
		return "still to tell what runs there"
	case n.Shape.Capacity.MemoryBytes <= 0:
		return "without known capacity"
	}
	return "held back after flapping"
}

// unblockPlacement returns what would help a placement that failed with this code, or "" if nothing is known to help.
func unblockPlacement(code model.Code) string {
	switch code {
	case model.CodeNoMemory:
		return "add a node, scale something down, or accept downtime"
	case model.CodeNoPorts:
		return "free the port on another node, or use a dynamic one"
	case model.CodeNoNodes:
		return "add or uncordon a node"
	case model.CodeNoRuntime:
		return "install containerd on a node, or add a node that has it"
	case model.CodeNoNetwork:
		return "install what a node lacks for it, as outspan node status NODE says, or use network = \"host\""
	case model.CodeRuntimeDown:
		return "start containerd there, or give the node what it lacks; see: outspan node status NODE"
	case model.CodeImagePull:
		return "see to the registry, or to the nodes' credentials for it; it is tried again within 5 minutes"
	case model.CodeConstraint:
		return "add a node that meets the constraints, or relax them"
	case model.CodeAntiAffinity:
		return "add or uncordon a node that has none of the group, or with another value of the distinct attribute"
	case model.CodeReplicaEvicting:
		return "the builds that go on there end"
	case model.CodeVolumeNoNode:
		return "uncordon or enable the node that has its data"
	case model.CodeVolumeOffline:
		return "bring the home node back, or: outspan volume restore BACKUP --node NODE --attach"
	case model.QuotaExceeded("memory"), model.QuotaExceeded("instances"):
		return "scale something of the class down, or raise the quota: outspan class set CLASS --quota-memory SIZE " +
			"--quota-instances N"
	case model.CodeRetryLimit:
		return "fix what makes it fail, or run a new version"
	}
	return ""
}
