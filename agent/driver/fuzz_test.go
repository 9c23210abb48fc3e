package driver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// FuzzStat: a process can choose any command name, and the name never changes how another field is read.
func FuzzStat(f *testing.F) {
	const rest = " S 1 7 7 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 99 1000 5 18446744073709551615 1 1 0 0 0\n"
	for _, name := range []string{"sh", "a b", ") S 9 9", "((", "", "\x00\n"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, err := parseStat([]byte("7 (" + name + ")" + rest))
		if err != nil || got.pid != 7 || got.ppid != 1 || got.start != 99 || got.state != 'S' {
			t.Fatalf("a process called %q is %+v, %v", name, got, err)
		}
		_, _ = parseStat([]byte(name))
		_, _ = parseStat([]byte(strings.Replace(rest, "S 1", name, 1)))
	})
}

// FuzzRecord checks that a damaged record is refused, and that encoding and decoding an accepted record gives an equal
// one.
func FuzzRecord(f *testing.F) {
	for _, id := range []Identity{{}, {PID: 7, Start: 99, Boot: "boot"}} {
		data, err := encodeRecord(id)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)-1])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var id Identity
		err := decodeRecord(data, &id)
		if err != nil {
			if !errors.Is(err, errRecordDamaged) {
				t.Fatal(err)
			}
			return
		}
		again, err := encodeRecord(id)
		if err != nil {
			t.Fatal(err)
		}
		var second Identity
		if err := decodeRecord(again, &second); err != nil || second != id {
			t.Fatalf("%+v came back as %+v, %v", id, second, err)
		}
	})
}

// FuzzControl: whatever bytes arrive at the control socket of a shim, a request takes exactly one frame, whose body has
// at most frameLimit bytes.
func FuzzControl(f *testing.F) {
	for _, body := range [][]byte{{0xa0}, {0x80}, {0xbf, 0xff}, {0xa1, 1, 1}} {
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		var req request
		in := bytes.NewReader(data)
		if err := ReadFrame(in, &req, frameLimit); err != nil {
			return
		}
		if n := binary.BigEndian.Uint32(data); n > frameLimit || in.Len() != len(data)-4-int(n) {
			t.Fatalf("a frame of %d bytes took %d of %d", n, len(data)-in.Len(), len(data))
		}
	})
}
