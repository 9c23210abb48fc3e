// Package canon writes and reads canonical CBOR without reflection. Writing allocates nothing but the output, except
// for maps of more than eight keys. A reader that needs one field allocates nothing.
package canon

import (
	"math"
	"slices"
	"strings"
)

// Major types of CBOR items.
const (
	Uint     = 0
	Negative = 1
	Text     = 3
	Map      = 5
)

// AppendHead appends the head of an item: its type, and its value or length in as few bytes as possible.
func AppendHead(b []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return append(b, major|25, byte(n>>8), byte(n))
	case n <= math.MaxUint32:
		return append(b, major|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, major|27, byte(n>>56), byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24),
		byte(n>>16), byte(n>>8), byte(n))
}

// AppendInt appends a signed integer.
func AppendInt(b []byte, n int64) []byte {
	if n < 0 {
		return AppendHead(b, Negative, uint64(-1-n))
	}
	return AppendHead(b, Uint, uint64(n))
}

// AppendText appends a text string.
func AppendText(b []byte, text string) []byte {
	return append(AppendHead(b, Text, uint64(len(text))), text...)
}

// AppendTexts appends a map of text strings, with its keys in the order of Compare.
func AppendTexts(b []byte, m map[string]string) []byte {
	var few [8]string
	keys := few[:0]
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, Compare)
	b = AppendHead(b, Map, uint64(len(m)))
	for _, key := range keys {
		b = AppendText(AppendText(b, key), m[key])
	}
	return b
}

// Compare compares two keys. Shorter keys are first; keys of equal length are in the order of their bytes.
func Compare(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// Reader reads canonical CBOR from the front. It fails at the first item that is not as expected. The failing read
// itself may return any value; all later reads return zero values.
type Reader struct {
	rest   string
	failed bool
}

// NewReader returns a Reader of the CBOR in text. Strings that the reader returns share the memory of text.
func NewReader(text string) Reader { return Reader{rest: text} }

// Done reports whether the whole text was read without a failure.
func (r *Reader) Done() bool { return !r.failed && r.rest == "" }

// Failed reports whether the reader has failed.
func (r *Reader) Failed() bool { return r.failed }

// Left returns the number of unread bytes. It returns 0 after a failure.
func (r *Reader) Left() int { return len(r.rest) }

// Want makes the reader fail if ok is false.
func (r *Reader) Want(ok bool) {
	if !ok {
		r.rest, r.failed = "", true
	}
}

// Head reads the head of an item: its type, and its value or length.
func (r *Reader) Head() (major byte, n uint64) {
	if r.rest == "" {
		r.Want(false)
		return 0, 0
	}
	major, n = r.rest[0]>>5, uint64(r.rest[0]&31)
	r.rest = r.rest[1:]
	if n < 24 {
		return major, n
	}
	size := 1 << (n - 24)
	if n > 27 || len(r.rest) < size {
		r.Want(false)
		return 0, 0
	}
	n = 0
	for i := range size {
		n = n<<8 | uint64(r.rest[i])
	}
	r.rest = r.rest[size:]
	r.Want(n >= 24 && (size == 1 || n>>(4*size) != 0)) // canonical CBOR has n in as few bytes as possible
	return major, n
}

// NextIs reports whether the next byte is the field number key, which is below 24. If so, it skips the byte.
func (r *Reader) NextIs(key uint64) bool {
	if r.rest == "" || r.rest[0] != byte(key) {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// Uint reads an unsigned integer.
func (r *Reader) Uint() uint64 {
	major, n := r.Head()
	r.Want(major == Uint)
	return n
}

// Int reads a signed integer.
func (r *Reader) Int() int64 {
	major, n := r.Head()
	r.Want((major == Uint || major == Negative) && n <= math.MaxInt64)
	if major == Negative {
		return -1 - int64(n)
	}
	return int64(n)
}

// Text reads a text string.
func (r *Reader) Text() string {
	major, n := r.Head()
	if r.Want(major == Text && n <= uint64(len(r.rest))); r.failed {
		return ""
	}
	text := r.rest[:n]
	r.rest = r.rest[n:]
	return text
}

// Texts reads a map of text strings. It fails if the map is empty or its keys are not in ascending order. If keep is
// false, it only checks the map and returns nil.
func (r *Reader) Texts(keep bool) (m map[string]string) {
	major, n := r.Head()
	r.Want(major == Map && n > 0 && n <= uint64(len(r.rest)))
	if keep && !r.failed {
		m = make(map[string]string, n)
	}
	last := ""
	for i := uint64(0); i < n && !r.failed; i++ {
		key, value := r.Text(), r.Text()
		r.Want(i == 0 || Compare(last, key) < 0)
		if last = key; m != nil && !r.failed {
			m[key] = value
		}
	}
	return m
}
