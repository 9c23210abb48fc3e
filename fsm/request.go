package fsm

// Request is the stored outcome of one write: the answer is rebuilt from it.
type Request struct {
	ID      RequestID `cbor:"1,keyasint"`
	Body    string    `cbor:"2,keyasint"` // hash of the request's body
	Index   uint64    `cbor:"3,keyasint"`
	At      Time      `cbor:"4,keyasint"`
	Refusal *Error    `cbor:"5,keyasint,omitempty"`
	Actor   Actor     `cbor:"6,keyasint"`
}
