package api

// Headers of the API.
const (
	// HeaderIndex is the log index that an answer is of.
	HeaderIndex = "Outspan-Index"
	// HeaderLeader names the leader, as the answering server knows it.
	HeaderLeader = "Outspan-Leader"
	// HeaderStale is, for a read, for how many milliseconds the answering server has not heard of the leader; 0 unless
	// it was asked with consistency=stale.
	HeaderStale = "Outspan-Stale-Ms"
	// HeaderLastEvent resumes an event stream behind an event.
	HeaderLastEvent = "Last-Event-ID"
)
