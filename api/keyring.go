package api

import "time"

// Keyring is the key-encryption keys of a cluster that makes its certificates itself, and which servers have them. It
// has no secret.
type Keyring struct {
	Keys    []KeyringKey    `json:"keys" doc:"of the leader's keyring, and those that it lacks"`
	Servers []KeyringServer `json:"servers" doc:"of the configuration of the log, the leader first"`
}

// KeyringKey is one key-encryption key.
type KeyringKey struct {
	ID       string    `json:"id"`
	Active   bool      `json:"active" doc:"it encrypts the data key that is in use"`
	Needed   bool      `json:"needed" doc:"it encrypts a data key of the state; other keys are kept for backups"`
	Exported bool      `json:"exported" doc:"an export with it is known; only for needed keys"`
	Created  time.Time `json:"created" doc:"0001-01-01T00:00:00Z: the leader lacks the key"`
}

// KeyringServer is what a server has proved of its keyring.
type KeyringServer struct {
	Name     string   `json:"name" doc:"its id if its name is not known"`
	Answers  bool     `json:"answers"`
	Complete bool     `json:"complete" doc:"it proved that it has every key that the state needs"`
	Lacks    []string `json:"lacks" doc:"keys that the state needs and it does not have"`
	Error    string   `json:"error,omitempty" doc:"why it proved nothing"`
}

// KeyringRotation is the outcome of a rotation of the keyring.
type KeyringRotation struct {
	Key     string          `json:"key,omitempty" doc:"the new key; absent in a dry run"`
	Before  string          `json:"before" doc:"the key that was in use before; it stays in the keyrings"`
	DryRun  bool            `json:"dry_run"`
	Servers []KeyringServer `json:"servers" doc:"as they were before the rotation; each must be complete"`
}

// KeyringPruning is the outcome of removing old keys from the keyrings.
type KeyringPruning struct {
	Removed []string      `json:"removed" doc:"keys that no server has any more; in a dry run, that would be removed"`
	Kept    []KeyringKept `json:"kept" doc:"by server and key"`
	DryRun  bool          `json:"dry_run"`
}

// KeyringKept says why a server keeps a key.
type KeyringKept struct {
	Server string `json:"server"`
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// ExportedBody names the keys of an export of a keyring.
type ExportedBody struct {
	Keys []string `json:"keys" doc:"the ids of all keys in the export"`
}
