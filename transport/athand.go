package transport

// Paths at which an agent serves people who look into an instance, through a server. The instance's id follows
// PathAgentExec and PathAgentForward; both are streams of package internal/duplex.
const (
	PathAgentExec    = "/v1/agent/exec/"
	PathAgentForward = "/v1/agent/forward/"
)

// HeaderOnBehalf carries the subject for whom a server calls an agent, escaped for a path. The agent counts by it.
const HeaderOnBehalf = "Outspan-On-Behalf-Of"
