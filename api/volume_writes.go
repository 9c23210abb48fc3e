package api

// TransferReply is the answer to a write that concerns volumes.
type TransferReply struct {
	Written
	Transfer *Transfer `json:"transfer,omitempty"`
}
