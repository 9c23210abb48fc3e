package model

// DeploymentStatus is the state of a deployment. It only moves forward: queued -> rolling -> succeeded | failed |
// superseded.
type DeploymentStatus string

// The states of a deployment. Superseded means that the job got a newer version before this one was rolled out.
const (
	DeploymentQueued     DeploymentStatus = "queued"
	DeploymentRolling    DeploymentStatus = "rolling"
	DeploymentSucceeded  DeploymentStatus = "succeeded"
	DeploymentFailed     DeploymentStatus = "failed"
	DeploymentSuperseded DeploymentStatus = "superseded"
)

// Ended reports whether s is a final state.
func (s DeploymentStatus) Ended() bool {
	return s == DeploymentSucceeded || s == DeploymentFailed || s == DeploymentSuperseded
}
