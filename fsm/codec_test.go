package fsm

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

func TestKindsAreCompleteAndUnique(t *testing.T) {
	numbers, names := map[Kind]bool{}, map[string]bool{}
	types := map[reflect.Type]bool{}
	last := Kind(0)
	for _, info := range kinds {
		c := info.make()
		if c.Kind() != info.kind {
			t.Errorf("%s: the table says kind %d, its method says %d", info.name, info.kind, c.Kind())
		}
		if numbers[info.kind] || names[info.name] || types[reflect.TypeOf(c)] {
			t.Errorf("%s (kind %d, %T) stands twice in the table", info.name, info.kind, c)
		}
		if info.format == 0 || info.format > model.CurrentFormat || info.kind == 0 {
			t.Errorf("%s: kind %d, format %d; both begin at 1 and the format ends at %d", info.name, info.kind,
				info.format, model.CurrentFormat)
		}
		if info.format == model.CurrentFormat && info.kind <= last {
			t.Errorf("%s: kinds of one format stand in order", info.name)
		}
		last = info.kind
		numbers[info.kind], names[info.name], types[reflect.TypeOf(c)] = true, true, true
	}
	for _, name := range commandTypes(t) {
		found := false
		for typ := range types {
			found = found || typ.Elem().Name() == name
		}
		if !found {
			t.Errorf("%s is a command that has no line in kinds", name)
		}
	}
}

func TestEveryCommandSurvivesTheCodec(t *testing.T) {
	want := sampleEntry()
	data, err := EncodeEntry(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeEntry(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decode(encode(x)) differs from x:\n%s", diff)
	}
}

func TestArbitraryCommandsSurviveTheCodec(t *testing.T) {
	for _, info := range kinds {
		t.Run(info.name, rapid.MakeCheck(func(t *rapid.T) {
			c := info.make()
			arbitrary(t, reflect.ValueOf(c).Elem())
			if raise, ok := c.(*FormatRaise); ok {
				raise.Format %= model.CurrentFormat + 1 // DecodeEntry refuses a higher format
			}
			want := Entry{Format: model.CurrentFormat, Groups: [][]Command{{c}}}
			data, err := EncodeEntry(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeEntry(data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("decode(encode(x)) differs from x:\n%s", diff)
			}
			empty, err := EncodeEntry(Entry{Format: model.CurrentFormat, Groups: [][]Command{}})
			size, refusal := GroupSize(want.Groups[0])
			if took := len(data) - len(empty); err != nil || refusal != nil || size < took || size > took+16 {
				t.Fatalf("the group takes %d bytes, told are %d (%v, %v)", took, size, refusal, err)
			}
			again, err := EncodeEntry(got)
			if err != nil || !bytes.Equal(data, again) {
				t.Fatalf("the same entry has two encodings (%v):\n%x\n%x", err, data, again)
			}
		}))
	}
}

// A pointer to zero is not decoded as nil. For example, an IfIndex of 0 means that the job must not exist, and nil
// means that the job's index does not matter.
func TestPointersToZeroSurvive(t *testing.T) {
	zero, none := uint64(0), model.Duration(0)
	want := Entry{Format: 1,
		Groups: [][]Command{{&JobSubmit{IfIndex: &zero}}, {&InstanceStop{Grace: &none}}, {&JobSubmit{}}}}
	got := recode(t, want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSpecSurvivesJSON(t *testing.T) {
	var want model.JobSpec
	sample(reflect.ValueOf(&want).Elem(), "spec", 1)
	positive(reflect.ValueOf(&want).Elem())
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got model.JobSpec
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a spec changes on its way through JSON:\n%s", diff)
	}
	if !strings.Contains(string(text), `"affinities":[{"attribute":`) {
		t.Errorf("an affinity has its constraint's keys beside its weight: %s", text)
	}
}

// positive removes the sign of every number in v, because amounts and durations in JSON can't be negative.
func positive(v reflect.Value) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		v.SetInt(max(v.Int(), -v.Int()))
	case reflect.Pointer:
		positive(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			positive(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			positive(v.Field(i))
		}
	}
}

func recode(t *testing.T, e Entry) Entry {
	t.Helper()
	data, err := EncodeEntry(e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeEntry(data)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// raw encodes any value as CBOR. Tests use it for entries that EncodeEntry would never write.
func raw(t testing.TB, v any) []byte {
	t.Helper()
	data, err := cbor.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDecodeEntryRefuses(t *testing.T) {
	entry := func(change func(m map[int]any)) []byte {
		m := map[int]any{1: 1, 2: 0, 3: 0, 8: []any{}}
		change(m)
		return raw(t, m)
	}
	command := func(kind, format int, body any) []byte {
		return entry(func(m map[int]any) { m[8] = [][]any{{[]any{kind, format, body}}} })
	}
	good := command(2, 1, map[int]any{1: 1})
	if _, err := DecodeEntry(good); err != nil {
		t.Fatalf("the good entry that the bad ones are made of: %v", err)
	}
	tests := []struct {
		name string
		data []byte
		code model.Code
		says string
	}{
		{"nothing", nil, model.CodeInvalid, "damaged"},
		{"garbage", []byte("garbage"), model.CodeInvalid, "damaged"},
		{"truncated", good[:len(good)-1], model.CodeInvalid, "damaged"},
		{"trailing byte", append(bytes.Clone(good), 0), model.CodeInvalid, "damaged"},
		{"no format", entry(func(m map[int]any) { delete(m, 1) }), model.CodeInvalid, "no format"},
		{"newer format", entry(func(m map[int]any) { m[1] = 7 }), model.CodeNeedsFormat, "the entry needs format 7"},
		{"newer format with a new field", entry(func(m map[int]any) {
			m[1], m[99] = 7, "new"
		}), model.CodeNeedsFormat, "the entry needs format 7"},
		{"newer format with new types", entry(func(m map[int]any) {
			m[1], m[2] = 7, "later"
		}), model.CodeNeedsFormat, "the entry needs format 7"},
		{"unknown field", entry(func(m map[int]any) { m[99] = 1 }), model.CodeNeedsFormat, "field"},
		{"field named by text", raw(t, map[any]any{1: 1, "2": 0}), model.CodeNeedsFormat, "field"},
		{"unknown kind", command(999, 4, map[int]any{}), model.CodeNeedsFormat, "command kind 999 needs format 4"},
		{"unknown kind that claims to be old", command(999, 1, map[int]any{}), model.CodeNeedsFormat,
			"command kind 999 needs format 2"},
		{"known kind of a newer format", command(2, 5, map[int]any{}), model.CodeNeedsFormat,
			"command kind 2 needs format 5"},
		{"known kind older than itself", command(2, 0, map[int]any{}), model.CodeInvalid, "older than the command"},
		{"unknown field of a command", command(2, 1, map[int]any{1: 1, 50: 1}), model.CodeNeedsFormat,
			"command kind 2 (format.raise, format 1)"},
		{"wrong type", command(2, 1, map[int]any{1: "x"}), model.CodeInvalid, "command kind 2"},
		{"number too large", command(2, 1, map[int]any{1: 1 << 20}), model.CodeInvalid, "command kind 2"},
		{"raised beyond this program", command(2, 1, map[int]any{1: 3}), model.CodeNeedsFormat,
			"the cluster was raised and needs format 3"},
		{"body null", command(2, 1, nil), model.CodeInvalid, "no map"},
		{"body a list", command(2, 1, []any{1}), model.CodeInvalid, "no map"},
		{"command of two parts", entry(func(m map[int]any) { m[8] = [][]any{{[]any{2, 1}}} }), model.CodeInvalid, "damaged"},
		{"duplicate key", []byte{0xa3, 1, 1, 1, 1, 8, 0x80}, model.CodeInvalid, "duplicate"},
		{"indefinite map", []byte{0xbf, 1, 1, 8, 0x80, 0xff}, model.CodeInvalid, "damaged"},
		{"indefinite list", []byte{0xa2, 1, 1, 8, 0x9f, 0xff}, model.CodeInvalid, "damaged"},
		{"tag", []byte{0xa2, 1, 1, 8, 0xc1, 0x80}, model.CodeInvalid, "damaged"},
		{"float", []byte{0xa2, 1, 0xf9, 0x3c, 0x00, 8, 0x80}, model.CodeInvalid, "damaged"},
		{"invalid text", entry(func(m map[int]any) { m[5] = "\xff" }), model.CodeInvalid, "damaged"},
		{"deep nesting", append(bytes.Repeat([]byte{0x81}, 100), 0x80), model.CodeInvalid, "damaged"},
		{"endless list", []byte{0xa2, 1, 1, 8, 0x9a, 0xff, 0xff, 0xff, 0xff}, model.CodeInvalid, "damaged"},
		{"too long", make([]byte, MaxEntryBytes+1), model.CodeInvalid, "at most"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeEntry(tt.data)
			var e *model.Error
			if !errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Message, tt.says) {
				t.Errorf("got %v, want code %s and a message with %q", err, tt.code, tt.says)
			}
			if e != nil && e.Code == model.CodeNeedsFormat && e.Hint == "" {
				t.Error("needs_format must say what to do")
			}
		})
	}
}

func TestEncodeEntryRefuses(t *testing.T) {
	huge := &JobStop{Job: model.JobName(strings.Repeat("x", MaxEntryBytes))}
	tests := []struct {
		name  string
		entry Entry
		code  model.Code
	}{
		{"no format", Entry{}, model.CodeInvalid},
		{"newer format", Entry{Format: model.CurrentFormat + 1}, model.CodeInvalid},
		{"nil command", Entry{Format: 1, Groups: [][]Command{{nil}}}, model.CodeInvalid},
		{"unknown command", Entry{Format: 1, Groups: [][]Command{{strangeCommand{}}}}, model.CodeInvalid},
		{"too long", Entry{Format: 1, Groups: [][]Command{{huge}}}, model.CodeInvalid},
		{"text that no server could read again", Entry{Format: 1, Groups: [][]Command{{&JobStop{Job: "\xff"}}}},
			model.CodeInvalid},
		{"a list that no server could read again",
			Entry{Format: 1, Groups: [][]Command{{&DrainStart{Nodes: make([]string, maxElements+1)}}}}, model.CodeInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data, err := EncodeEntry(tt.entry)
			if !errors.Is(err, &model.Error{Code: tt.code}) || data != nil {
				t.Errorf("got %d bytes and %v, want code %s", len(data), err, tt.code)
			}
		})
	}
}

type strangeCommand struct{}

func (strangeCommand) Kind() Kind         { return 60000 }
func (strangeCommand) apply(*State) error { return nil }

// GroupSize accepts a group of MaxGroupBytes, which fits into an entry, and refuses a larger group.
func TestGroupSize(t *testing.T) {
	sized := func(bytes int) []Command {
		c := &JobStop{Job: model.JobName(strings.Repeat("x", 100_000))}
		size, refusal := GroupSize([]Command{c})
		if refusal != nil {
			t.Fatal(refusal)
		}
		c.Job += model.JobName(strings.Repeat("x", bytes-size))
		return []Command{c}
	}
	largest := sized(MaxGroupBytes)
	if size, refusal := GroupSize(largest); refusal != nil || size != MaxGroupBytes {
		t.Errorf("the largest group: %d bytes, %v", size, refusal)
	}
	if _, err := EncodeEntry(Entry{Format: model.CurrentFormat, Groups: [][]Command{largest}}); err != nil {
		t.Errorf("an entry with the largest group: %v", err)
	}
	_, refusal := GroupSize(sized(MaxGroupBytes + 1))
	wantCode(t, "a larger group", refusal, model.CodeTooLarge)
}

func TestKindName(t *testing.T) {
	for kind, want := range map[Kind]string{10: "node.register", 60000: "kind 60000"} {
		if got := KindName(kind); got != want {
			t.Errorf("KindName(%d) = %q, want %q", kind, got, want)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, info := range kinds { // small seeds, because the fuzzer is slow to minimize large ones
		data, err := EncodeEntry(Entry{Format: model.CurrentFormat, Groups: [][]Command{{sampleCommand(info)}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(raw(f, map[int]any{1: 1, 8: [][]any{{[]any{2, 1, map[int]any{1: 1}}}}}))
	f.Add([]byte{0xbf, 1, 1, 8, 0x80, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEntry(data)
		if err != nil {
			var refusal *model.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("the error has no code: %v", err)
			}
			return
		}
		again, err := EncodeEntry(e)
		if err != nil {
			t.Fatalf("an entry that was read can't be written: %v", err)
		}
		e2, err := DecodeEntry(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, e2, equateEmpty()); diff != "" {
			t.Fatalf("decode(encode(x)) differs from x:\n%s", diff)
		}
	})
}

// equateEmpty treats empty and nil lists and maps as equal, because the encoding omits both.
func equateEmpty() cmp.Option {
	return cmp.FilterValues(func(x, y any) bool {
		vx, vy := reflect.ValueOf(x), reflect.ValueOf(y)
		list := vx.IsValid() && vy.IsValid() && vx.Type() == vy.Type() &&
			(vx.Kind() == reflect.Slice || vx.Kind() == reflect.Map)
		return list && vx.Len() == 0 && vy.Len() == 0
	}, cmp.Comparer(func(_, _ any) bool { return true }))
}

// A hostile entry may turn few bytes into large structs. The memory for decoding must still be proportional to the
// length of the entry.
func TestDecodingTakesBoundedMemory(t *testing.T) {
	groups := make([]any, 20_000)
	for i := range groups {
		groups[i] = map[int]any{} // one byte each in CBOR
	}
	data := raw(t, map[int]any{1: 1, 8: [][]any{{[]any{40, 1, map[int]any{1: map[int]any{1: "j", 3: groups}}}}}})
	took := allocated(func() { _, _ = DecodeEntry(data) })
	if per := took / int64(len(data)); per > 1500 {
		t.Errorf("decoding takes %d bytes of memory for each byte of input", per)
	}
}
