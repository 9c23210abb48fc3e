package fsm

import (
	"math"
	"slices"
	"strings"
)

// packedEvent is an event as its row in snapshots and digests: one CBOR map in canonical form. That is how the state keeps events, for of all rows they are the most
// and the least read. One takes 190 bytes instead of 550, and a snapshot or a digest copies it instead of encoding it anew (100,000 of them: 0.2 s).
//
// It is written and read here, not by the CBOR library: what is emitted makes one object, and a reader who looks for something makes none.
type packedEvent string

// Types of items in CBOR.
const (
	cborUint     = 0
	cborNegative = 1
	cborText     = 3
)

// pack encodes an event. It keeps nothing of e.
func pack(e *Event) packedEvent {
	var buffer [512]byte // on the stack
	b := appendHead(buffer[:1], cborUint, 1)
	b = appendHead(b, cborUint, uint64(e.Key))
	b = appendText(appendHead(b, cborUint, 2), string(e.Type))
	b = appendText(appendHead(b, cborUint, 3), e.Subject)
	b = appendInt(appendHead(b, cborUint, 4), e.Wall)
	fields := byte(5)
	for i, text := range [...]string{string(e.Cause), string(e.Actor), string(e.Request), e.Before, e.After} {
		if text != "" {
			b = appendText(appendHead(b, cborUint, uint64(5+i)), text)
			fields++
		}
	}
	if len(e.Data) > 0 {
		b = appendPairs(appendHead(b, cborUint, 10), e.Data)
		fields++
	}
	b = appendInt(appendHead(b, cborUint, 11), int64(e.At))
	b[0] = cborMap<<5 | fields
	return packedEvent(b)
}

// appendHead begins an item of CBOR: its type, and its value or its length in as few bytes as can be.
func appendHead(b []byte, major byte, n uint64) []byte {
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
	return append(b, major|27, byte(n>>56), byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func appendInt(b []byte, n int64) []byte {
	if n < 0 {
		return appendHead(b, cborNegative, uint64(-1-n))
	}
	return appendHead(b, cborUint, uint64(n))
}

func appendText(b []byte, text string) []byte {
	return append(appendHead(b, cborText, uint64(len(text))), text...)
}

func appendPairs(b []byte, m map[string]string) []byte {
	var few [8]string
	keys := few[:0]
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareTexts)
	b = appendHead(b, cborMap, uint64(len(m)))
	for _, key := range keys {
		b = appendText(appendText(b, key), m[key])
	}
	return b
}

// compareTexts is the order of keys in canonical CBOR: the shorter first.
func compareTexts(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// open decodes the event. Its texts are parts of p, so it costs the event and its map. ok is false if p is not exactly what pack makes of an event; what
// stands before the fault is in e all the same.
func (p packedEvent) open() (e *Event, ok bool) {
	e = new(Event)
	return e, p.read(e, true)
}

// event is open without asking whether all is well.
func (p packedEvent) event() *Event {
	e, _ := p.open()
	return e
}

// head decodes the first fields of an event: key, type, subject and wall time. It allocates nothing.
func (p packedEvent) head() (e Event) {
	in := unpacker{rest: string(p)}
	_, _ = in.head()
	in.required(&e)
	return e
}

// valid reports whether p is exactly what pack makes of an event, and which key it has.
func (p packedEvent) valid() (key EventKey, ok bool) {
	var e Event
	ok = p.read(&e, false)
	return e.Key, ok
}

// read decodes into e; without data the map is only checked.
func (p packedEvent) read(e *Event, data bool) bool {
	in := unpacker{rest: string(p)}
	major, left := in.head()
	in.want(major == cborMap && left >= 5 && left <= 11)
	in.required(e)
	left -= 5
	texts := [...]struct {
		key uint64
		to  *string
	}{{5, (*string)(&e.Cause)}, {6, (*string)(&e.Actor)}, {7, (*string)(&e.Request)}, {8, &e.Before}, {9, &e.After}}
	for _, text := range texts {
		if left > 0 && in.nextIs(text.key) {
			*text.to = in.text()
			in.want(*text.to != "")
			left--
		}
	}
	if left > 0 && in.nextIs(10) {
		e.Data = in.pairs(data)
		left--
	}
	in.want(in.nextIs(11))
	e.At = Time(in.int())
	return !in.failed && left == 0 && in.rest == ""
}

// unpacker reads canonical CBOR from the front. Once something is not as it should be it is failed, and reads only zeros.
type unpacker struct {
	rest   string
	failed bool
}

func (u *unpacker) want(ok bool) {
	if !ok {
		u.rest, u.failed = "", true
	}
}

// required reads the fields that are never left out.
func (u *unpacker) required(e *Event) {
	u.want(u.nextIs(1))
	e.Key = EventKey(u.uint())
	u.want(u.nextIs(2))
	e.Type = EventType(u.text())
	u.want(u.nextIs(3))
	e.Subject = u.text()
	u.want(u.nextIs(4))
	e.Wall = u.int()
}

// head reads the beginning of an item.
func (u *unpacker) head() (major byte, n uint64) {
	if u.rest == "" {
		u.want(false)
		return 0, 0
	}
	major, n = u.rest[0]>>5, uint64(u.rest[0]&31)
	u.rest = u.rest[1:]
	if n < 24 {
		return major, n
	}
	size := 1 << (n - 24)
	if n > 27 || len(u.rest) < size {
		u.want(false)
		return 0, 0
	}
	n = 0
	for i := range size {
		n = n<<8 | uint64(u.rest[i])
	}
	u.rest = u.rest[size:]
	u.want(n >= 24 && (size == 1 || n>>(4*size) != 0)) // it would have fitted in half as many
	return major, n
}

// nextIs skips the number of a field if it is the next.
func (u *unpacker) nextIs(key uint64) bool {
	if u.rest == "" || u.rest[0] != byte(key) {
		return false
	}
	u.rest = u.rest[1:]
	return true
}

func (u *unpacker) uint() uint64 {
	major, n := u.head()
	u.want(major == cborUint)
	return n
}

func (u *unpacker) int() int64 {
	major, n := u.head()
	u.want((major == cborUint || major == cborNegative) && n <= math.MaxInt64)
	if major == cborNegative {
		return -1 - int64(n)
	}
	return int64(n)
}

func (u *unpacker) text() string {
	major, n := u.head()
	if u.want(major == cborText && n <= uint64(len(u.rest))); u.failed {
		return ""
	}
	text := u.rest[:n]
	u.rest = u.rest[n:]
	return text
}

// pairs reads a map of texts, which has no key twice and is not empty.
func (u *unpacker) pairs(keep bool) (m map[string]string) {
	major, n := u.head()
	u.want(major == cborMap && n > 0 && n <= uint64(len(u.rest)))
	if keep && !u.failed {
		m = make(map[string]string, n)
	}
	last := ""
	for i := uint64(0); i < n && !u.failed; i++ {
		key, value := u.text(), u.text()
		u.want(i == 0 || compareTexts(last, key) < 0)
		if last = key; m != nil && !u.failed {
			m[key] = value
		}
	}
	return m
}
