package fsm

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// A row of maxFrame bytes is written and read back. A larger one can't be written.
func TestRowTooLargeForASnapshot(t *testing.T) {
	sized := func(bytes int) State {
		job := Job{Name: "j", Deployment: model.DeploymentID(strings.Repeat("x", maxFrame/2))}
		encoded, err := wire.enc.Marshal(&job)
		if err != nil {
			t.Fatal(err)
		}
		job.Deployment += model.DeploymentID(strings.Repeat("x", bytes-len(encoded)))
		s := NewState().fork()
		s.Jobs.put("j", &job)
		return s.publish()
	}
	largest := sized(maxFrame)
	got, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, largest)))
	if err != nil {
		t.Fatal(err)
	}
	sameState(t, largest, got)
	wantError(t, WriteSnapshot(io.Discard, sized(maxFrame+1)), model.CodeInternal, "at most")
}

// A snapshot can't unpack to more than maxUnpacked bytes.
func TestSnapshotThatUnpacksToTooMuch(t *testing.T) {
	for _, tt := range []struct {
		before int64 // bytes of earlier rows
		code   model.Code
	}{{maxUnpacked - 4, ""}, {maxUnpacked - 3, model.CodeInvalid}} {
		f := frameReader{r: bufio.NewReader(bytes.NewReader(frame(1, []byte("body")))), read: tt.before}
		_, err := f.next()
		switch {
		case tt.code == "" && (err != nil || string(f.body) != "body"):
			t.Errorf("after %d bytes: %q, %v", tt.before, f.body, err)
		case tt.code != "":
			wantError(t, err, tt.code, "unpacks to more")
		}
	}
}
