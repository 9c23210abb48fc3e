package fsm

import "github.com/outspan/outspan/model"

// Request is the stored outcome of one write. The answer to a repeated request is rebuilt from it.
type Request struct {
	ID      model.RequestID `cbor:"1,keyasint"`
	Body    string          `cbor:"2,keyasint"` // hash of the request's body
	Index   uint64          `cbor:"3,keyasint"`
	At      model.Time      `cbor:"4,keyasint"`
	Refusal *model.Error    `cbor:"5,keyasint,omitempty"`
	Actor   model.Actor     `cbor:"6,keyasint"`
}

// Told returns the refusal that answers a repeated request; nil if the first was not refused.
func (r *Request) Told() *model.Error {
	if r.Refusal == nil || r.Refusal.Message != "" {
		return r.Refusal
	}
	return model.Refuse(r.Refusal.Code,
		"request %s was refused at index %d; the text is not kept, as %s makes many requests", r.ID, r.Index, r.Actor).
		WithHint("send it with a new request id to see the reason")
}
