package api

// Headers of the API.
const (
	// HeaderIndex is the log index of the state that an answer shows.
	HeaderIndex = "Outspan-Index"
	// HeaderLeader names the server that the answering server believes to be the leader.
	HeaderLeader = "Outspan-Leader"
	// HeaderStale is how many milliseconds ago the answering server last heard from the leader. It is 0 unless the read
	// asked for consistency=stale.
	HeaderStale = "Outspan-Stale-Ms"
	// HeaderLastEvent is a request header: the event stream resumes after the event with this id.
	HeaderLastEvent = "Last-Event-ID"
)
