package transport

import (
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// PathAgentStats is where an agent tells what instances use. The parameter instance names one, and job the instances of
// a job. The answer is a list of InstanceUse.
const PathAgentStats = "/v1/agent/stats"

// InstanceUse is what an agent tells of one instance: either Use or Problem.
type InstanceUse struct {
	ID      model.InstanceID  `json:"id"`
	Use     *api.InstanceUse  `json:"use,omitempty"`
	Problem *api.StatsProblem `json:"problem,omitempty"`
}
