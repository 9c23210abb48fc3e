// Package bridge gives containers a network of their own on one machine: a network namespace each, an address behind a
// bridge, and ports of the machine that lead to ports of the container.
//
// The work is done by the standard CNI plugins bridge, host-local, portmap and loopback. Everything that a Network
// makes has a name that comes from the node's id: the bridge, the rules of the firewall and the files. So two clusters
// on one machine share nothing, and Sweep never removes what a neighbour made. A Keeper knows which containers need
// their networks, over restarts of the agent. IPv4 only. It needs root.
package bridge
