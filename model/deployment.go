package model

// DeploymentStatus is the state of a deployment: queued, then rolling, then succeeded, failed or superseded. It never
// goes back.
type DeploymentStatus string

// The states of a deployment. Superseded means that a newer version or a stop of the job came before the deployment
// ended.
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
