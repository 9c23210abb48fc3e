package fsm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/internal/canon"
	"github.com/outspan/outspan/model"
)

// MaxEntryBytes is the largest size of an encoded entry. Requests are at most 1 MiB, and the leader limits its own
// entries to 256 KiB unless a single group of commands is larger. Decoding an entry takes at most about a kilobyte of
// memory for each byte of the entry.
const MaxEntryBytes = 2 << 20

// Limits of the decoders, besides the length of the input.
const (
	// An entry needs about half of these levels. The deepest path has 11: entry, groups, group, command, body, spec,
	// groups, group, list, element, constraint.
	maxNesting  = 24
	maxElements = 1 << 17
)

// wireEntry is an Entry on disk: a map with integer keys.
type wireEntry struct {
	Format  uint16          `cbor:"1,keyasint"`
	At      model.Time      `cbor:"2,keyasint"`
	Wall    int64           `cbor:"3,keyasint"`
	Term    uint64          `cbor:"4,keyasint,omitempty"`
	Actor   model.Actor     `cbor:"5,keyasint,omitempty"`
	Request model.RequestID `cbor:"6,keyasint,omitempty"`
	Body    string          `cbor:"7,keyasint,omitempty"`
	Groups  [][]wireCommand `cbor:"8,keyasint"`
	Rights  uint64          `cbor:"9,keyasint,omitempty"`
}

// wireCommand is a Command on disk: an array of three elements. Format is the lowest format whose readers understand
// the body.
type wireCommand struct {
	_      struct{} `cbor:",toarray"`
	Kind   Kind
	Format uint16
	Body   cbor.RawMessage
}

// wireFormat is read from an entry that the strict decoder refused, to find out whether the entry has a newer format.
type wireFormat struct {
	Format uint16 `cbor:"1,keyasint"`
}

// codecs are the encoder and the decoders of everything that is replicated. They are safe for concurrent use.
type codecs struct {
	enc   cbor.UserBufferEncMode
	entry cbor.DecMode // strict
	row   cbor.DecMode // strict, but accepts invalid UTF-8, because model.Clip may cut a string within a character
	peek  cbor.DecMode // accepts unknown fields; used only to explain why the decoder named entry failed
}

var wire = newCodecs()

func newCodecs() codecs {
	strict := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		MaxNestedLevels:   maxNesting,
		MaxArrayElements:  maxElements,
		MaxMapPairs:       maxElements,
	}
	rows, peek := strict, strict
	rows.UTF8 = cbor.UTF8DecodeInvalid
	peek.ExtraReturnErrors = cbor.ExtraDecErrorNone
	enc, err := cbor.CoreDetEncOptions().UserBufferEncMode()
	c := codecs{enc: enc, entry: mode(strict, &err), row: mode(rows, &err), peek: mode(peek, &err)}
	if err != nil {
		panic(fmt.Sprintf("fsm: options of the CBOR library: %v", err))
	}
	return c
}

func mode(opts cbor.DecOptions, failure *error) cbor.DecMode {
	m, err := opts.DecMode()
	*failure = errors.Join(*failure, err)
	return m
}

// EncodeEntry returns the bytes of an entry. It also decodes these bytes as a test, because an entry in the log that no
// server can read would stop every server. Codes: invalid, needs_format.
func EncodeEntry(e Entry) ([]byte, error) {
	if e.Format == 0 {
		return nil, model.Refuse(model.CodeInvalid, "an entry without a format").WithHint("set it to the State's")
	}
	w := wireEntry{e.Format, e.At, e.Wall, e.Term, e.Actor, e.Request, e.Body, make([][]wireCommand, len(e.Groups)),
		e.Rights}
	for i, group := range e.Groups {
		w.Groups[i] = make([]wireCommand, len(group))
		for j, c := range group {
			var err error
			if w.Groups[i][j], err = encodeCommand(e.Format, c); err != nil {
				return nil, err
			}
		}
	}
	var buf bytes.Buffer
	if err := wire.enc.MarshalToBuffer(w, &buf); err != nil {
		return nil, model.Refuse(model.CodeInvalid, "the entry can't be encoded: %v", err)
	}
	if buf.Len() > MaxEntryBytes {
		return nil,
			model.Refuse(model.CodeInvalid, "the entry has %d bytes, at most %d are allowed", buf.Len(), MaxEntryBytes).
				WithHint("make the request smaller, or split it")
	}
	if _, err := DecodeEntry(buf.Bytes()); err != nil {
		return nil, model.Refuse(model.CodeInvalid, "the entry could not be read again: %v", err)
	}
	return buf.Bytes(), nil
}

func encodeCommand(format uint16, c Command) (wireCommand, error) {
	if c == nil {
		return wireCommand{}, model.Refuse(model.CodeInvalid, "an entry with a command that is nil")
	}
	info, known := kindOf(c.Kind())
	if !known {
		return wireCommand{}, model.Refuse(model.CodeInvalid, "command kind %d is not in the table of kinds", c.Kind())
	}
	if info.format > format {
		return wireCommand{}, model.Refuse(model.CodeNeedsFormat, "%s needs format %d, the cluster is at format %d",
			info.name, info.format, format).
			WithHint("upgrade every server first")
	}
	body, err := wire.enc.Marshal(c)
	if err != nil {
		return wireCommand{}, model.Refuse(model.CodeInvalid, "%s can't be encoded: %v", info.name, err)
	}
	return wireCommand{Kind: info.kind, Format: info.format, Body: body}, nil
}

func kindOf(kind Kind) (kindInfo, bool) {
	for i := range kinds {
		if kinds[i].kind == kind {
			return kinds[i], true
		}
	}
	return kindInfo{}, false
}

// KindName returns the name of a command kind, such as "node.register". For a kind that this program doesn't know, it
// returns "kind N".
func KindName(kind Kind) string {
	if info, known := kindOf(kind); known {
		return info.name
	}
	return fmt.Sprintf("kind %d", kind)
}

// DecodeEntry reads what EncodeEntry wrote. Duplicate keys, unknown fields, indefinite lengths, tags and trailing bytes
// are errors. The error is always a *model.Error. Its code is needs_format if only a newer program understands the
// entry, and otherwise invalid. A server with such an entry in its log must stop, and must not skip the entry.
func DecodeEntry(data []byte) (Entry, error) {
	if len(data) > MaxEntryBytes {
		return Entry{},
			model.Refuse(model.CodeInvalid, "the entry has %d bytes, at most %d are allowed", len(data), MaxEntryBytes)
	}
	var w wireEntry
	if err := wire.entry.Unmarshal(data, &w); err != nil {
		return Entry{}, explainEntry(data, err)
	}
	if w.Format == 0 {
		return Entry{}, model.Refuse(model.CodeInvalid, "the entry is damaged: it has no format")
	}
	if w.Format > model.CurrentFormat {
		return Entry{}, needsFormat("the entry", w.Format)
	}
	e := Entry{w.Format, w.At, w.Wall, w.Term, w.Actor, w.Request, w.Body, make([][]Command, len(w.Groups)),
		w.Rights}
	for i, group := range w.Groups {
		e.Groups[i] = make([]Command, len(group))
		for j := range group {
			c, err := decodeCommand(&group[j])
			if err != nil {
				return Entry{}, err
			}
			e.Groups[i][j] = c
		}
	}
	return e, nil
}

func decodeCommand(w *wireCommand) (Command, error) {
	info, known := kindOf(w.Kind)
	if !known || w.Format > model.CurrentFormat {
		return nil, needsFormat(fmt.Sprintf("command kind %d", w.Kind), w.Format)
	}
	if w.Format < info.format {
		return nil,
			model.Refuse(model.CodeInvalid, "the entry is damaged: %s of format %d, older than the command itself",
				info.name, w.Format)
	}
	if len(w.Body) == 0 || w.Body[0]>>5 != canon.Map {
		return nil, model.Refuse(model.CodeInvalid, "the entry is damaged: the body of %s is no map", info.name)
	}
	c := info.make()
	if err := wire.entry.Unmarshal(w.Body, c); err != nil {
		return nil, explain(fmt.Sprintf("command kind %d (%s, format %d)", w.Kind, info.name, w.Format), err)
	}
	if raise, ok := c.(*FormatRaise); ok && raise.Format > model.CurrentFormat {
		return nil, needsFormat("the cluster was raised and", raise.Format)
	}
	return c, nil
}

// explainEntry returns the reason why the strict decoder refused an entry. If the entry has a newer format, the reason
// is this format, even if err is about an unknown field that the format added.
func explainEntry(data []byte, err error) *model.Error {
	var w wireFormat
	if wire.peek.Unmarshal(data, &w) == nil && w.Format > model.CurrentFormat {
		return needsFormat("the entry", w.Format)
	}
	return explain("the entry", err)
}

// explain turns an error of the decoder into a refusal. An unknown field means that a newer program wrote the data.
func explain(what string, err error) *model.Error {
	var unknown *cbor.UnknownFieldError
	if errors.As(err, &unknown) {
		return model.Refuse(model.CodeNeedsFormat, "%s holds a field that format %d does not have (%v)",
			what, model.CurrentFormat, err).
			WithHint("run the newer outspan on this server; its data is untouched")
	}
	return model.Refuse(model.CodeInvalid, "%s is damaged: %v", what, err)
}

func needsFormat(what string, format uint16) *model.Error {
	if format <= model.CurrentFormat { // the entry has an unknown kind of command, but a format that this program reads
		format = model.CurrentFormat + 1
	}
	return model.Refuse(model.CodeNeedsFormat, "%s needs format %d; this program reads formats up to %d", what,
		format, model.CurrentFormat).
		WithHint("run the newer outspan on this server; its data is untouched")
}
