package cli

import (
	"errors"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// If the disk is full when a snapshot is saved, the error has the code disk_full and a hint.
func TestSnapshotOnAFullDisk(t *testing.T) {
	err := notWritten("monday.snap", &fs.PathError{Op: "write", Path: ".outspan-snapshot-1", Err: unix.ENOSPC})
	if f := describe(err); f.Code != model.CodeDiskFull || f.Hint == "" {
		t.Errorf("%+v", f)
	}
	if f := describe(notWritten("monday.snap", errors.New("the machine is on fire"))); f.Code != "error" {
		t.Errorf("%+v", f)
	}
}
