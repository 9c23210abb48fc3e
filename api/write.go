package api

// Written is part of every answer to a write that changes the state.
type Written struct {
	Index     uint64 `json:"index" doc:"of the log entry; for a dry run that of the state it was tried on"`
	RequestID string `json:"request_id,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"`
	Replayed  bool   `json:"replayed,omitempty" doc:"this is the outcome of an earlier request with the same id"`
}
