package model

// ContainerRuntime is what an agent reports about the container runtime of its node.
type ContainerRuntime struct {
	Version string `cbor:"1,keyasint,omitempty"`
	// Down says why the runtime does not answer; "" means that it answers. Containers that run already go on without it.
	Down string `cbor:"2,keyasint,omitempty"`
}
