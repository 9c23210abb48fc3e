package driver

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// NoteLimit is the size of the largest note, in bytes. The kernel writes up to this many bytes to a pipe in one piece.
const NoteLimit = 4096

// noteTimeout is how long a shim waits for room in the stderr pipe. The reader of the pipe may wait for a disk, and the
// shim has leases to watch.
const noteTimeout = 20 * time.Millisecond

// Note writes text into the instance's stderr log, between what the program writes. Hooks use it. The text must consist
// of whole lines, of at most NoteLimit bytes together. Note blocks for some milliseconds, or for up to four seconds if
// the shim does not answer. What can't be written is lost.
//
// It returns CodeNotRunning if the instance has ended, CodeStateFailed if the shim can't write the text, and
// CodeInvalidSpec if the text is too long or the shim is of an older release without notes.
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

// openNotes opens the write end of the stderr pipe a second time, as a separate file description that does not block.
// So the program's own end stays blocking.
func openNotes(pipe *os.File) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", pipe.Fd()), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the log pipe for notes: %w", err)
	}
	return os.NewFile(uintptr(fd), "notes"), nil
}

// note writes text into the stderr pipe for the agent. It waits for noteTimeout at most.
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
