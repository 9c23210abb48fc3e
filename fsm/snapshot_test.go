package fsm

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

func snapshotOf(t rapid.TB, s State) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := WriteSnapshot(&buf, s); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// sameState compares two states by their digests, by Diff and by dump.
func sameState(t testing.TB, want, got State) {
	t.Helper()
	if Digest(want) != Digest(got) {
		t.Errorf("the digests differ: %s, %s", Digest(want), Digest(got))
	}
	if rows := Diff(want, got); len(rows) > 0 {
		t.Errorf("rows differ: %+v", rows)
	}
	if diff := cmp.Diff(dump(want), dump(got)); diff != "" {
		t.Errorf("the states differ:\n%s", diff)
	}
}

// dump returns all tables and indexes of a state, in a form that cmp.Diff can compare.
func dump(s State) map[string]any {
	onNode := map[model.NodeID]string{}
	for id, h := range s.onNode.All() {
		onNode[id] = fmt.Sprint(*h)
	}
	return map[string]any{
		"meta": s.meta(), "events": rowsOf(s.Events.rows),

		"nodes": rowsOf(s.Nodes), "drains": rowsOf(s.Drains),
		"nodeNames": rowsOf(s.nodeNames), "outOfService": rowsOf(s.outOfService), "restoring": rowsOf(s.restoring),
		"unheard": rowsOf(s.unheard), "leftOutEvents": rowsOf(s.leftOutEvents),

		"requests": rowsOf(s.Requests), "requestLog": rowsOf(s.requestLog), "requestsOf": rowsOf(s.requestsOf),

		"instances": rowsOf(s.Instances), "inGroup": rowsOf(s.inGroup), "onNode": onNode,
		"pulls": rowsOf(s.Pulls), "pullsOn": rowsOf(s.pullsOn),
		"departing": rowsOf(s.departing), "classUse": rowsOf(s.classUse), "unheardReady": rowsOf(s.unheardReady),

		"jobs": rowsOf(s.Jobs), "versions": rowsOf(s.Versions), "groups": rowsOf(s.Groups),
		"deployments": rowsOf(s.Deployments), "services": rowsOf(s.Services), "budgets": rowsOf(s.Budgets),
		"jobSums": fmt.Sprint(rowsOf(s.jobSums)), "unsettled": rowsOf(s.unsettled),
		"openDeployments": rowsOf(s.openDeployments),

		"volumes": rowsOf(s.Volumes), "transfers": rowsOf(s.Transfers), "backups": rowsOf(s.Backups),
		"copiesOn": rowsOf(s.copiesOn), "actors": rowsOf(s.Actors), "rails": rowsOf(s.Rails),

		"trustKeys": rowsOf(s.TrustKeys), "joinTokens": rowsOf(s.JoinTokens), "trustMembers": rowsOf(s.TrustMembers),
		"revokedAgents": rowsOf(s.revokedAgents), "newcomers": rowsOf(s.Newcomers),
	}
}

func rowsOf[K ~string | ~uint64, V any](t Table[K, V]) map[K]V {
	rows := map[K]V{}
	for k, v := range t.All() {
		rows[k] = v
	}
	return rows
}

func TestSnapshotRestores(t *testing.T) {
	for name, s := range map[string]State{"empty": NewState(), "sample": sampleState()} {
		t.Run(name, func(t *testing.T) {
			data := snapshotOf(t, s)
			got, err := ReadSnapshot(iotest.OneByteReader(bytes.NewReader(data)))
			if err != nil {
				t.Fatal(err)
			}
			sameState(t, s, got)
			if again := snapshotOf(t, got); !bytes.Equal(data, again) {
				t.Error("the same state has two snapshots")
			}
		})
	}
}

func TestInspectSnapshot(t *testing.T) {
	s := sampleState()
	data := snapshotOf(t, s)
	got, err := InspectSnapshot(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	want := SnapshotInfo{
		Format: 1, Index: s.Index, Term: s.LogTerm, ClusterID: s.Cluster.ID, ClusterName: s.Cluster.Name,
		Incarnation: s.Incarnation, Wall: s.Wall,
		Bytes: int64(len(data)), Digest: Digest(s),
	}
	for _, r := range rowTables {
		want.Tables = append(want.Tables, TableCount{r.name, 1})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// frame returns one frame of a snapshot, with the number of a table and the encoded row. The row may be invalid.
func frame(table byte, body []byte) []byte {
	f := binary.BigEndian.AppendUint32([]byte{table}, uint32(len(body)))
	return append(f, body...)
}

// packed returns a snapshot of the given frames, with correct checksums. The frames may be invalid.
func packed(t rapid.TB, format uint16, frames ...[]byte) []byte {
	t.Helper()
	out := bytes.NewBuffer(prelude(format))
	err := packParts(out, func(w io.Writer) error {
		_, err := w.Write(bytes.Join(frames, nil))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// part returns one part of a snapshot with a correct checksum. The bytes in it may be invalid.
func part(b []byte) []byte {
	var out bytes.Buffer
	p := partWriter{w: &out}
	_, _ = p.Write(b)
	_ = p.flush()
	return out.Bytes()
}

// unpacked returns the uncompressed frames of a snapshot.
func unpacked(t rapid.TB, data []byte) []byte {
	t.Helper()
	parts := &partReader{r: bytes.NewReader(data)}
	if _, err := parts.prelude(); err != nil {
		t.Fatal(err)
	}
	frames, err := io.ReadAll(flate.NewReader(parts))
	if err != nil {
		t.Fatal(err)
	}
	return frames
}

func prelude(format uint16) []byte {
	p := binary.BigEndian.AppendUint16([]byte(snapshotMagic), format)
	return binary.BigEndian.AppendUint32(p, crc32.Checksum(p, castagnoli))
}

func TestReadSnapshotRefuses(t *testing.T) {
	good := snapshotOf(t, sampleState())
	meta := func(format int) []byte { return frame(1, raw(t, map[int]any{1: 5, 5: format})) }
	trailer := frame(255, raw(t, map[int]any{1: []any{}, 2: "x"}))
	node := func(id string) []byte { return frame(2, raw(t, map[int]any{1: id, 2: id})) }
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	snap := func(frames ...[]byte) []byte { return packed(t, 1, frames...) }
	tests := []struct {
		name string
		data []byte
		code model.Code
		says string
	}{
		{"nothing", nil, model.CodeInvalid, "too early"},
		{"garbage", []byte("this is a text file, and a rather long one"), model.CodeInvalid, "no outspan snapshot"},
		{"a newer format", append(prelude(9), "whatever"...), model.CodeNeedsFormat, "the snapshot needs format 9"},
		{"a format whose bits flipped", append(prelude(1)[:len(snapshotMagic)+1], 9, 0, 0, 0, 0),
			model.CodeInvalid, "head does not match"},
		{"nothing behind its head", prelude(1), model.CodeInvalid, "too early"},
		{"two formats", snap(meta(2), trailer), model.CodeInvalid, "format 1 and format 2"},
		{"no scalars", snap(node("a")), model.CodeInvalid, "begins with table 2"},
		{"an unknown table", snap(meta(1), frame(77, raw(t, map[int]any{}))), model.CodeInvalid, "table 77"},
		{"tables out of order", snap(meta(1), frame(3, raw(t, map[int]any{1: "j"})), node("a")),
			model.CodeInvalid, "table 2"},
		{"rows out of order", snap(meta(1), node("b"), node("a")), model.CodeInvalid, "out of order at a"},
		{"a row twice", snap(meta(1), node("a"), node("a")), model.CodeInvalid, "out of order at a"},
		{"a row with an unknown field", snap(meta(1), frame(2, raw(t, map[int]any{1: "a", 99: 1}))),
			model.CodeNeedsFormat, "field"},
		{"a row that is no map", snap(meta(1), frame(2, raw(t, nil))), model.CodeInvalid, "no map"},
		{"a row of nothing", snap(meta(1), frame(2, nil)), model.CodeInvalid, "no map"},
		{"a huge row", snap(meta(1), []byte{2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}), model.CodeInvalid, "at most"},
		{"no trailer", snap(meta(1), node("a")), model.CodeInvalid, "too early"},
		{"a wrong digest", snap(meta(1), trailer), model.CodeInvalid, "digest"},
		{"wrong counts", snap(meta(1), node("a"), trailer), model.CodeInvalid, "says"},
		{"a row behind the trailer", snap(unpacked(t, good), node("a")), model.CodeInvalid, "follows its last row"},
		{"something behind its end", append(bytes.Clone(good), 0), model.CodeInvalid, "too early"},
		{"a part behind its end", join(good, part([]byte{0})), model.CodeInvalid, "follows its end"},
		{"two snapshots", append(bytes.Clone(good), good...), model.CodeInvalid, "at most"},
		{"a part of nothing", join(prelude(1), make([]byte, partHead)), model.CodeInvalid, "part of 0 bytes"},
		{"a huge part", join(prelude(1), bytes.Repeat([]byte{0xff}, 20)), model.CodeInvalid, "at most"},
		{"what is not packed", join(prelude(1), part(bytes.Repeat([]byte{0xff}, 20))), model.CodeInvalid, "unpacked"},
		{"half of what is packed", join(prelude(1), part(good[preludeSize+partHead:len(good)/2])),
			model.CodeInvalid, "too early"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := ReadSnapshot(bytes.NewReader(tt.data))
			wantError(t, err, tt.code, tt.says)
			if s.Index != 0 || s.Nodes.Len() != 0 {
				t.Error("a refused snapshot still gave a state")
			}
		})
	}
}

func wantError(t *testing.T, err error, code model.Code, says string) {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, says) {
		t.Errorf("got %v, want code %s and a message with %q", err, code, says)
	}
}

// ReadSnapshot and InspectSnapshot refuse a file with any single damaged byte, and a file that is cut anywhere.
func TestDamageIsNoticed(t *testing.T) {
	good := snapshotOf(t, sampleState())
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		for what, data := range map[string][]byte{"damaged at": bad, "cut at": good[:i]} {
			_, err := ReadSnapshot(bytes.NewReader(data))
			_, err2 := InspectSnapshot(bytes.NewReader(data))
			var e *model.Error
			if !errors.As(err, &e) || !errors.As(err2, &e) {
				t.Fatalf("%s byte %d of %d: read %v, inspect %v", what, i, len(good), err, err2)
			}
		}
	}
}

func TestSnapshotOfAFullDisk(t *testing.T) {
	full := errors.New("no space left on device")
	s := sampleState()
	size := len(snapshotOf(t, s))
	for _, room := range []int{0, 1, size / 2, size - 1} {
		if err := WriteSnapshot(&smallDisk{room, full}, s); !errors.Is(err, full) {
			t.Errorf("with room for %d of %d bytes: %v", room, size, err)
		}
	}
	if _, err := ReadSnapshot(iotest.ErrReader(full)); !errors.Is(err, full) {
		t.Errorf("reading: %v", err)
	}
}

type smallDisk struct {
	room int
	err  error
}

func (d *smallDisk) Write(p []byte) (int, error) {
	if len(p) > d.room {
		return d.room, d.err
	}
	d.room -= len(p)
	return len(p), nil
}

// A row with text that was cut within a character does not make a snapshot unreadable.
func TestRowsKeepBrokenText(t *testing.T) {
	s := NewState().fork()
	s.Jobs.put("j", &Job{Name: "j", Deployment: "caf\xc3"})
	want := s.publish()
	got, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, want)))
	if err != nil {
		t.Fatal(err)
	}
	sameState(t, want, got)
}

func TestIndexesThatContradict(t *testing.T) {
	two := func(put func(s *State)) []byte {
		s := NewState().fork()
		put(s)
		return snapshotOf(t, s.publish())
	}
	names := two(func(s *State) {
		s.Nodes.put("a", &Node{ID: "a", Name: "same"})
		s.Nodes.put("b", &Node{ID: "b", Name: "same"})
	})
	ports := two(func(s *State) {
		for _, id := range []model.InstanceID{"a", "b"} {
			s.Instances.put(id, &Instance{ID: id, Node: "n", Claims: Claims{Ports: model.Ports{{Name: "http", Number: 80}}}})
		}
	})
	_, err := ReadSnapshot(bytes.NewReader(names))
	wantError(t, err, model.CodeInvalid, "same name")
	_, err = ReadSnapshot(bytes.NewReader(ports))
	wantError(t, err, model.CodeInvalid, "same port")
}

func TestDigestSeesEveryTable(t *testing.T) {
	seen := map[string]string{Digest(NewState()): "none"}
	one := sampleState()
	for _, table := range rowTables {
		s := NewState().fork()
		err := table.each(&one, func(body []byte) error {
			if refusal := table.add(s, body, sharing{}); refusal != nil {
				return refusal
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		d := Digest(s.publish())
		if other := seen[d]; other != "" {
			t.Errorf("a row of %s changes the digest no more than that of %s", table.name, other)
		}
		seen[d] = table.name
	}
}

func FuzzReadSnapshot(f *testing.F) {
	f.Add(snapshotOf(f, sampleState()))
	f.Add(snapshotOf(f, NewState()))
	f.Add(prelude(9))
	f.Add(packed(f, 1, frame(1, []byte{0xa0})))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ReadSnapshot(bytes.NewReader(data))
		info, err2 := InspectSnapshot(bytes.NewReader(data))
		if err != nil {
			var e *model.Error
			if !errors.As(err, &e) {
				t.Fatalf("the error has no code: %v", err)
			}
			return
		}
		if err2 != nil || info.Digest != Digest(s) {
			t.Fatalf("a snapshot that is read fails inspection: %v, %+v", err2, info)
		}
		if again := snapshotOf(t, s); !bytes.Equal(again, data) {
			t.Fatalf("the same state has two snapshots:\n%x\n%x", data, again)
		}
	})
}

// WriteSnapshot of 5,000 nodes and 100,000 instances allocates at most 100 MiB. ReadSnapshot of the file allocates at
// most 400 MiB, so the state is not in memory twice.
func TestSnapshotOf100kInstances(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	n := size{5000, 100_000}
	path := filepath.Join(t.TempDir(), "state.snapshot")
	want := func() string {
		s := bigState(t, n)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		wrote := allocated(func() { err = WriteSnapshot(f, s) })
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		if wrote > 100<<20 {
			t.Errorf("writing took %d MiB of memory", wrote>>20)
		}
		return Digest(s)
	}()
	before := heap()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s State
	read := allocated(func() { s, err = ReadSnapshot(f) })
	if err != nil {
		t.Fatal(err)
	}
	kept := heap() - before
	t.Logf("read: %d MiB allocated, %d MiB kept", read>>20, kept>>20)
	if read > 400<<20 || kept > 300<<20 {
		t.Errorf("reading took %d MiB of memory, the state keeps %d MiB", read>>20, kept>>20)
	}
	if s.Instances.Len() != n.instances || Digest(s) != want {
		t.Errorf("%d instances came back, digest %s, want %s", s.Instances.Len(), Digest(s), want)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// allocated calls the function do. It returns how many bytes the call allocated, including bytes that were freed again.
func allocated(do func()) int64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	do()
	runtime.ReadMemStats(&b)
	return int64(b.TotalAlloc - a.TotalAlloc)
}
