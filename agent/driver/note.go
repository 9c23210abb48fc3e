package driver

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// NoteLimit is the size of the largest note, in bytes. A write of up to this many bytes to a pipe is atomic, so output
// of the program can't split a note.
const NoteLimit = 4096

// noteTimeout is how long a shim waits for room in the stderr pipe. The pipe stays full while its reader waits for a
// disk, but the shim's only goroutine must also watch the lease.
const noteTimeout = 20 * time.Millisecond

// Note writes text, such as a hook's output, into the instance's stderr log. The text must consist of whole lines, of
// at most NoteLimit bytes together. Note blocks for some milliseconds, or for up to four seconds if the shim does not
// answer. After an error the text is lost.
//
// Codes: CodeNotRunning (the instance has ended), CodeStateFailed (the shim can't write the text), CodeInvalidSpec (the
// text is too long, or the shim is of an older release without notes). Other errors mean that the shim did not answer.
func (t *Task) Note(ctx context.Context, text string) error {
	if len(text) > NoteLimit {
		return model.Refuse(CodeInvalidSpec, "a note of %d bytes for instance %s is above %d", len(text), t.ID(), NoteLimit)
	}
	_, err := callShim(ctx, t.dir, request{Op: opNote, Text: text}, shimPatience)
	if noShim(err) {
		return model.Refuse(CodeNotRunning, "instance %s does not run", t.ID())
	}
	return err
}

// openNotes opens the write end of the stderr pipe a second time, as a non-blocking file description. The program's own
// file description must stay blocking.
func openNotes(pipe *os.File) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", pipe.Fd()), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the log pipe for notes: %w", err)
	}
	return os.NewFile(uintptr(fd), "notes"), nil
}

// note handles opNote: it writes text into the stderr pipe. It blocks for noteTimeout at most.
func (s *shim) note(text string) reply {
	if len(text) > NoteLimit {
		return reply{Code: CodeInvalidSpec, Message: "the note is too long"}
	}
	err := s.logs.notes.SetWriteDeadline(time.Now().Add(noteTimeout))
	if err == nil {
		_, err = s.logs.notes.WriteString(text)
	}
	if err != nil {
		return reply{Code: CodeStateFailed, Message: fmt.Sprintf("write to the log: %v", err)}
	}
	return reply{}
}
