package model

// DeploymentStatus only moves forward: queued -> rolling -> succeeded | failed | superseded.
type DeploymentStatus string

// The states of a deployment. Superseded means that a newer version came before this one was done.
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
