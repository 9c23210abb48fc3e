package trust

import "time"

// Server is what a server knows of a server in the configuration of the log.
type Server struct {
	Name    string        // its id while the name is unknown
	Answers bool          // it answers the leader; only the leader knows that of other servers
	Silent  time.Duration // since its last answer, or since the leader began to lead; only on the leader
}
