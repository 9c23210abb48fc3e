package frame_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outspan/outspan/api/frame"
)

var header = frame.Header{Server: "s1", Index: 1 << 40, Age: 1500 * time.Millisecond}

// build returns a copy of a frame with what add adds.
func build(h frame.Header, add func(*frame.Builder)) []byte {
	var b frame.Builder
	b.Begin(nil, h)
	add(&b)
	return slices.Clone(b.Finish())
}

// Rows that were built are read as they were, at any handles, of any width.
func TestRowsAreReadAsBuilt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wanted := map[uint32]string{}
		var reader frame.Reader
		first := header
		first.Flags = frame.FlagReset
		if _, err := reader.Apply(build(first, func(*frame.Builder) {})); err != nil {
			t.Fatal(err)
		}
		h := header
		h.Flags = frame.FlagWhole
		var p *frame.Picture
		for range rapid.IntRange(1, 4).Draw(t, "frames") {
			handles := rapid.SliceOfNDistinct(rapid.Uint32Range(0, 300), 1, 40, rapid.ID[uint32]).Draw(t, "handles")
			slices.Sort(handles)
			if rapid.Bool().Draw(t, "range") {
				for i := range handles {
					handles[i] = handles[0] + uint32(i)
				}
			}
			columns := make([][]uint32, 1+frame.NodeInstances)
			most := rapid.SampledFrom([]uint32{0, 200, 60_000, 1 << 31}).Draw(t, "most")
			var names []string
			for i := range columns {
				for range handles {
					columns[i] = append(columns[i], rapid.Uint32Range(0, most).Draw(t, "value"))
				}
			}
			for range handles {
				names = append(names, rapid.StringMatching(`[a-zä]{0,9}`).Draw(t, "name"))
			}
			raw := build(h, func(b *frame.Builder) { b.Rows(frame.KindNodes, handles, columns, names) })
			if len(raw)%8 != 0 {
				t.Fatalf("a frame of %d bytes", len(raw))
			}
			got, err := frame.Read(bytes.NewReader(raw), nil)
			if err != nil {
				t.Fatal(err)
			}
			if p, err = reader.Apply(got); err != nil {
				t.Fatal(err)
			}
			for i, at := range handles {
				var row []uint32
				for c := range columns {
					row = append(row, columns[c][i])
				}
				wanted[at] = names[i] + rowText(row)
			}
		}
		for at, want := range wanted {
			var row []uint32
			for _, c := range p.Nodes.Columns {
				row = append(row, c[at])
			}
			if got := p.Nodes.Names[at] + rowText(row); got != want {
				t.Fatalf("row %d is %q, want %q", at, got, want)
			}
		}
		if h.Flags = frame.FlagWhole; p.Header != h {
			t.Fatalf("header %+v, want %+v", p.Header, h)
		}
	})
}

func rowText(row []uint32) string {
	var text []byte
	for _, v := range row {
		text = binary.BigEndian.AppendUint32(text, v)
	}
	return string(text)
}

// A snapshot replaces the picture only when it is whole, and then altogether.
func TestSnapshotIsSwappedInWhole(t *testing.T) {
	groups := func(flags uint8, name string, at ...uint32) []byte {
		h := header
		h.Flags = flags
		states, names := make([]uint32, len(at)), make([]string, len(at))
		for i := range at {
			states[i], names[i] = 1, name
		}
		return build(h, func(b *frame.Builder) { b.Rows(frame.KindGroups, at, [][]uint32{states}, names) })
	}
	var r frame.Reader
	if _, err := r.Apply(groups(0, "early", 1)); err == nil {
		t.Error("a stream begins without a snapshot, and nobody says so")
	}
	for i, step := range []struct {
		raw   []byte
		names []string // nil: no picture yet
		whole bool
	}{
		{groups(frame.FlagReset, "a", 0, 1), nil, false},
		{groups(frame.FlagWhole, "a", 2), []string{"a", "a", "a"}, true},
		{groups(0, "b", 1), []string{"a", "b", "a"}, false},
		{groups(frame.FlagWhole, "b", 2), []string{"a", "b", "b"}, true},
		{groups(frame.FlagReset, "c", 0), []string{"a", "b", "b"}, false},
		{groups(0, "c", 1), []string{"a", "b", "b"}, false},
		{groups(frame.FlagReset|frame.FlagWhole, "d", 1), []string{"", "d"}, true},
	} {
		p, err := r.Apply(step.raw)
		if err != nil {
			t.Fatal(i, err)
		}
		switch {
		case step.names == nil && p != nil:
			t.Errorf("step %d shows a picture", i)
		case step.names == nil:
		case p.Whole != step.whole:
			t.Errorf("step %d is whole: %v", i, p.Whole)
		case i >= 4 && i < 6 && p.Age >= 0:
			t.Errorf("step %d: the old picture has the age %v", i, p.Age)
		default:
			if d := cmp.Diff(step.names, p.Groups.Names); d != "" {
				t.Errorf("step %d: %s", i, d)
			}
		}
	}
}

// The example of docs/page-stream.md: every byte of a frame is where the page says.
func TestBytesOfAFrame(t *testing.T) {
	h := header
	h.Flags, h.Index, h.Age = frame.FlagWhole, 7, -1
	got := build(h, func(b *frame.Builder) {
		b.Rows(frame.KindInstances, []uint32{5, 9}, [][]uint32{{3, 3}, {1, 2}, {256, 0}, {0, 1 << 16}}, nil)
		b.Rows(frame.KindGroups, []uint32{4, 5}, [][]uint32{{1, 1}}, []string{"a/b", "c/d"})
	})
	want := []byte{
		176, 0, 0, 0, 1, 2, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 2, 0, 0, 0, 's', '1', 0, 0, 0, 0, 0, 0,

		5, 2, 4, 0, 80, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0,
		0, 0, 0, 0, 3, 0, 0, 0,
		1, 0, 0, 0, 2, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0,
		2, 0, 0, 0, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
		4, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,

		4, 1, 2, 0, 48, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0,
		0, 0, 0, 0, 1, 0, 0, 0,
		255, 0, 0, 0, 6, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0, 'a', '/', 'b', 'c', '/', 'd', 0, 0,
	}
	want[0] = byte(len(want))
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A reader of this version skips what a newer server adds: kinds of sections, and columns.
func TestNewerServer(t *testing.T) {
	h := header
	h.Flags = frame.FlagReset | frame.FlagWhole
	raw := build(h, func(b *frame.Builder) {
		b.Rows(9, []uint32{1, 2}, [][]uint32{{1, 2}}, nil)
		b.Text(10, []byte("no JSON"))
		b.Rows(frame.KindGroups, []uint32{0, 1}, [][]uint32{{1, 1}, {7, 8}, {9, 9}}, []string{"a/b", "c/d"})
	})
	var r frame.Reader
	p, err := r.Apply(raw)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(frame.Table{Columns: [][]uint32{{1, 1}}, Names: []string{"a/b", "c/d"}}, p.Groups); d != "" {
		t.Error(d)
	}
	raw[4]++
	if _, err := r.Apply(raw); err == nil {
		t.Error("a frame of another version is read")
	}
}

// A stream that ends in the middle of a frame is told from one that ends between two.
func TestEndOfAStream(t *testing.T) {
	raw := build(header, func(*frame.Builder) {})
	for n := range raw {
		_, err := frame.Read(bytes.NewReader(raw[:n]), nil)
		if want := map[bool]error{true: io.EOF, false: io.ErrUnexpectedEOF}[n == 0]; !errors.Is(err, want) {
			t.Errorf("after %d bytes: %v, want %v", n, err, want)
		}
	}
}

// No bytes make a Reader panic, or take memory beyond its bounds.
func FuzzReader(f *testing.F) {
	h := header
	h.Flags = frame.FlagReset | frame.FlagWhole
	f.Add(build(h, func(b *frame.Builder) {
		b.Text(frame.KindBanner, []byte(`{"server":"s1"}`))
		b.Rows(frame.KindNodes, []uint32{1, 7}, make2(1+frame.NodeInstances), []string{"n1", "n2"})
		b.Rows(frame.KindInstances, []uint32{0, 1}, make2(1+frame.InstanceSlot), nil)
	}))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		if got, err := frame.Read(bytes.NewReader(raw), nil); err == nil {
			raw = got
		}
		var r frame.Reader
		_, _ = r.Apply(raw)
	})
}

func make2(columns int) (all [][]uint32) {
	for i := range columns {
		all = append(all, []uint32{uint32(i), 1 << (3 * i)})
	}
	return all
}
