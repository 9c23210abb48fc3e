package transport

// Headers of the API.
const (
	// HeaderIndex is the log index that an answer is of.
	HeaderIndex = "Outspan-Index"
	// HeaderLeader names the leader, as the answering server knows it.
	HeaderLeader = "Outspan-Leader"
	// HeaderStale is, for a read with consistency=stale, for how many milliseconds the answering server has not heard
	// of the leader.
	HeaderStale = "Outspan-Stale-Ms"
	// HeaderLastEvent resumes an event stream behind an event.
	HeaderLastEvent = "Last-Event-ID"
)
