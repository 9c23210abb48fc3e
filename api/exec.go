package api

import "github.com/outspan/outspan/model"

// ContentTypeDuplex is the media type of the streams of exec and forward, in both directions; see package
// internal/duplex.
const ContentTypeDuplex = "application/vnd.outspan.duplex"

// The lanes of exec. Its messages are ExecStart, which the caller sends first, TerminalSize, and ExecEnd, which comes
// last.
const (
	LaneStdin uint32 = 1 + iota
	LaneStdout
	LaneStderr
)

// ExecStart says which command is to run in an instance.
type ExecStart struct {
	Command []string `json:"command"` // the program and its arguments
	Stdin   bool     `json:"stdin,omitempty"`
	// Terminal is the first size of the terminal; without it, the command has pipes.
	Terminal *TerminalSize `json:"terminal,omitempty"`
	Term     string        `json:"term,omitempty"` // the kind of the terminal, for TERM
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// ExecEnd says how a command or a forward ended.
type ExecEnd struct {
	ExitCode int      `json:"exit_code"`
	Error    *Problem `json:"error,omitempty"` // it was ended, or did not end by itself
}

// Check refuses what can't be run. Code: invalid.
func (s *ExecStart) Check() error {
	if len(s.Command) == 0 || s.Command[0] == "" {
		return model.Refuse(model.CodeInvalid, "the command is empty").WithHint("for example: outspan instance exec ID -- sh")
	}
	if len(s.Term) > 64 {
		return model.Refuse(model.CodeInvalid, "term has %d bytes", len(s.Term))
	}
	return nil
}

// ForwardStart says which port of an instance is to be forwarded. It is the first message of a forward; each lane that
// the caller opens is a connection. ForwardReady answers it, and ExecEnd comes last.
type ForwardStart struct {
	Port string `json:"port"` // the name of a port that the job declares, or its number
}

// Check refuses what can't be a port. Code: invalid.
func (s *ForwardStart) Check() error {
	if s.Port == "" || len(s.Port) > 64 {
		return model.Refuse(model.CodeInvalid, "no port is named").
			WithHint("for example: outspan instance forward ID 8080:http")
	}
	return nil
}

// ForwardReady says that connections may come.
type ForwardReady struct {
	Port int `json:"port"` // of the instance
}
