package series

import (
	"slices"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// Def describes a series.
type Def struct {
	Name string
	// Unit is "", bytes, shares (thousandths of a core), seconds, per_second or percent.
	Unit string
	// Verb is what one needs on everything to read it; for series of one job or one node, on that.
	Verb rights.Verb
	// Local says that the server samples itself. Otherwise it samples the replicated state, or what all servers hear.
	Local bool
	Help  string
	// peak says that a longer step has the largest value in place of the mean.
	peak bool
}

// The columns of the ring. Their order is that of Defs.
const (
	nodesActive = iota
	nodesCordoned
	nodesDraining
	nodesDisabled
	nodesDegraded
	nodesUnreachable
	nodesOffline
	nodesMeasured
	cpuCapacity
	cpuAllocated
	cpuUsed
	memoryCapacity
	memoryAllocated
	memoryUsed
	instancesWanted
	instancesRunning
	instancesReady
	instancesLost
	instancesEnding
	groupsShort
	pendingAge
	drainsRunning
	drainNodes
	blocked
	raftLeads
	raftEntries
	raftLag
	raftSilence
	applyMean
	applyMost
	syncMean
	syncMost
	serverHeap
	serverMemory
	serverGoroutines
	serverDisk
	columns
)

// Defs returns the series of the cluster and of the server, in the order of the columns.
func Defs() []Def { return slices.Clone(defs[:]) }

const (
	ofNodes     = rights.Verb("node.read")
	ofInstances = rights.Verb("instance.read")
	ofServers   = rights.Verb("server.read")
	ofJobs      = rights.Verb("job.read")
)

var defs = [columns]Def{
	nodesActive:      {Name: "nodes_active", Verb: ofNodes, Help: "Nodes by state: active."},
	nodesCordoned:    {Name: "nodes_cordoned", Verb: ofNodes, Help: "Nodes by state: cordoned."},
	nodesDraining:    {Name: "nodes_draining", Verb: ofNodes, Help: "Nodes by state: draining."},
	nodesDisabled:    {Name: "nodes_disabled", Verb: ofNodes, Help: "Nodes by state: disabled."},
	nodesDegraded:    {Name: "nodes_degraded", Verb: ofNodes, Help: "Nodes by state: degraded."},
	nodesUnreachable: {Name: "nodes_unreachable", Verb: ofNodes, Help: "Nodes by state: unreachable."},
	nodesOffline:     {Name: "nodes_offline", Verb: ofNodes, Help: "Nodes by state: offline."},
	nodesMeasured: {Name: "nodes_measured", Verb: ofNodes,
		Help: "Nodes whose heartbeats said within the last minute what the machine uses."},
	cpuCapacity: {Name: "cpu_capacity", Unit: "shares", Verb: ofNodes,
		Help: "CPU that instances can have on all nodes."},
	cpuAllocated: {Name: "cpu_allocated", Unit: "shares", Verb: ofNodes, Help: "CPU that instances hold."},
	cpuUsed:      {Name: "cpu_used", Unit: "shares", Verb: ofNodes, Help: "CPU that the measured machines use."},
	memoryCapacity: {Name: "memory_capacity", Unit: "bytes", Verb: ofNodes,
		Help: "Memory that instances can have on all nodes."},
	memoryAllocated: {Name: "memory_allocated", Unit: "bytes", Verb: ofNodes, Help: "Memory that instances hold."},
	memoryUsed: {Name: "memory_used", Unit: "bytes", Verb: ofNodes,
		Help: "Memory that the measured machines use."},
	instancesWanted: {Name: "instances_wanted", Verb: ofInstances, Help: "Instances that groups should have."},
	instancesRunning: {Name: "instances_running", Verb: ofInstances,
		Help: "Instances that should run, whatever their observed state."},
	instancesReady: {Name: "instances_ready", Verb: ofInstances, Help: "Ready instances."},
	instancesLost:  {Name: "instances_lost", Verb: ofInstances, Help: "Instances that should run and are lost."},
	instancesEnding: {Name: "instances_ending", Verb: ofInstances,
		Help: "Instances that should stop and have not stopped yet."},
	groupsShort: {Name: "groups_short", Verb: ofInstances,
		Help: "Groups with fewer ready instances than they should have."},
	pendingAge: {Name: "pending_age", Unit: "seconds", Verb: ofInstances, peak: true,
		Help: "For how long the group that is short the longest has been so. Unknown while that began before the server."},
	drainsRunning: {Name: "drains", Verb: ofNodes, Help: "Running drains."},
	drainNodes:    {Name: "drain_nodes", Verb: ofNodes, Help: "Nodes of running drains that are not empty yet."},
	blocked:       {Name: "blocked", Verb: ofNodes, Help: "Instances that running drains can't stop now."},
	raftLeads:     {Name: "raft_leads", Verb: ofServers, Local: true, Help: "1 while the server leads."},
	raftEntries: {Name: "raft_entries", Unit: "per_second", Verb: ofServers, Local: true,
		Help: "Entries of the log that the server applies, each second."},
	raftLag: {Name: "raft_lag", Verb: ofServers, Local: true, peak: true,
		Help: "Committed entries that are not yet in its state."},
	raftSilence: {Name: "raft_silence", Unit: "seconds", Verb: ofServers, Local: true, peak: true,
		Help: "For how long the server has not known that its state is current."},
	applyMean: {Name: "apply_mean", Unit: "seconds", Verb: ofServers, Local: true,
		Help: "Mean time to apply entries."},
	applyMost: {Name: "apply_max", Unit: "seconds", Verb: ofServers, Local: true, peak: true,
		Help: "Longest time to apply entries."},
	syncMean: {Name: "sync_mean", Unit: "seconds", Verb: ofServers, Local: true,
		Help: "Mean time to append to the log on the disk, with its fsync."},
	syncMost: {Name: "sync_max", Unit: "seconds", Verb: ofServers, Local: true, peak: true,
		Help: "Longest time to append to the log on the disk."},
	serverHeap: {Name: "server_heap", Unit: "bytes", Verb: ofServers, Local: true,
		Help: "Heap of the process."},
	serverMemory: {Name: "server_memory", Unit: "bytes", Verb: ofServers, Local: true,
		Help: "Resident memory of the process."},
	serverGoroutines: {Name: "server_goroutines", Verb: ofServers, Local: true, Help: "Goroutines of the process."},
	serverDisk: {Name: "server_disk_free", Unit: "bytes", Verb: ofServers, Local: true,
		Help: "Free bytes on its disk."},
}

// The columns of a job, and of a node.
var (
	ofJob = [...]Def{
		{Name: "job_wanted", Verb: ofJobs, Help: "Instances that the job should have."},
		{Name: "job_running", Verb: ofJobs, Help: "Instances of the job that should run."},
		{Name: "job_ready", Verb: ofJobs, Help: "Ready instances of the job."},
	}
	ofNode = [...]Def{
		{Name: "node_cpu_allocated", Unit: "shares", Verb: ofNodes, Help: "CPU that instances hold on the node."},
		{Name: "node_cpu_used", Unit: "shares", Verb: ofNodes, Help: "CPU that the machine uses."},
		{Name: "node_memory_allocated", Unit: "bytes", Verb: ofNodes,
			Help: "Memory that instances hold on the node."},
		{Name: "node_memory_used", Unit: "bytes", Verb: ofNodes, Help: "Memory that the machine uses."},
	}
)

// JobDefs returns the series of one job, and NodeDefs those of one node.
func JobDefs() []Def { return slices.Clone(ofJob[:]) }

// NodeDefs returns the series of one node.
func NodeDefs() []Def { return slices.Clone(ofNode[:]) }

// stateColumn returns the column that counts the nodes in a state.
func stateColumn(s model.NodeState) int {
	switch s {
	case model.NodeActive:
		return nodesActive
	case model.NodeCordoned:
		return nodesCordoned
	case model.NodeDraining:
		return nodesDraining
	case model.NodeDisabled:
		return nodesDisabled
	case model.NodeDegraded:
		return nodesDegraded
	case model.NodeUnreachable:
		return nodesUnreachable
	case model.NodeOffline:
	}
	return nodesOffline
}
