package fsm

import "github.com/outspan/outspan/model"

// Request is the stored outcome of one write. If the request is repeated, its answer is built from this row.
type Request struct {
	ID      model.RequestID `cbor:"1,keyasint"`
	Body    string          `cbor:"2,keyasint"` // hash of the request's body
	Index   uint64          `cbor:"3,keyasint"`
	At      model.Time      `cbor:"4,keyasint"`
	Refusal *model.Error    `cbor:"5,keyasint,omitempty"`
	Actor   model.Actor     `cbor:"6,keyasint"`
}

// Conflict returns nil if the outcome in r may answer a new request with the same id. For that, the new request must
// have the same actor and the same body; the argument body is the hash of its body. An actor that learns another
// actor's request id must not learn the outcome of that request. Code: request_id_conflict.
func (r *Request) Conflict(actor model.Actor, body string) *model.Error {
	how := "for another request"
	switch {
	case r.Actor != actor:
		how = "by another caller"
	case r.Body == body:
		return nil
	}
	return model.Refuse(model.CodeRequestConflict, "request id %s was used at index %d %s", r.ID, r.Index, how).
		WithHint("choose a new request id")
}

// FirstRefusal returns the refusal that answers a repeated request. It returns nil if the first request was not
// refused.
func (r *Request) FirstRefusal() *model.Error {
	if r.Refusal == nil || r.Refusal.Message != "" {
		return r.Refusal
	}
	return model.Refuse(r.Refusal.Code,
		"request %s was refused at index %d; the text is not kept, as %s makes many requests", r.ID, r.Index, r.Actor).
		WithHint("send it with a new request id to see the reason")
}
