package api

// Headers of the API.
const (
	// HeaderIndex is the log index of the state that an answer shows.
	HeaderIndex = "Outspan-Index"
	// HeaderLeader names the leader that the answering server knows.
	HeaderLeader = "Outspan-Leader"
	// HeaderStale is how many milliseconds ago the answering server last heard from the leader. It is 0 unless the read
	// asked for consistency=stale.
	HeaderStale = "Outspan-Stale-Ms"
	// HeaderLastEvent resumes an event stream after an event.
	HeaderLastEvent = "Last-Event-ID"
)
