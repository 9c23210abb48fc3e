package bridge

import "cmp"

// Adopt holds the ports of a container that an earlier process has connected. It does nothing for a container without a
// network, or whose ports are held. Codes: CodePortTaken, CodeFailed.
func (n *Network) Adopt(id string) error {
	n.turn <- struct{}{}
	defer n.unlock()
	if len(n.ports[id]) > 0 {
		return nil
	}
	rt, _, err := n.remembered(n.portmap(nil), id)
	if err != nil || rt == nil {
		return err
	}
	mappings, err := mappingsOf(rt)
	if err != nil {
		return err
	}
	return n.hold(id, mappings)
}

// Mapped returns the ports that are led to containers, by the containers' ids, of all that have something left of a
// network. It only reads files. Code: CodeFailed.
func (n *Network) Mapped() (map[string][]Mapping, error) {
	n.turn <- struct{}{}
	defer n.unlock()
	ids, err := n.attached()
	if err != nil {
		return nil, err
	}
	all, first := map[string][]Mapping{}, error(nil)
	for _, id := range ids {
		rt, _, err := n.remembered(n.portmap(nil), id)
		if all[id] = nil; err == nil && rt != nil {
			all[id], err = mappingsOf(rt)
		}
		first = cmp.Or(first, err)
	}
	return all, first
}
