package transport

import "time"

// PathAgentImage is where an agent resolves the image that the query parameter name names, without a digest.
const PathAgentImage = "/v1/agent/image"

// ResolveWait is how long an agent may take to resolve an image.
const ResolveWait = 15 * time.Second

// ResolvedImage is what a registry told an agent of an image.
type ResolvedImage struct {
	Digest    string   `json:"digest"`    // of the image's index, "sha256:..."
	Platforms []string `json:"platforms"` // such as "linux/amd64"; empty if the registry did not tell
}
