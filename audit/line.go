package audit

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Stage says what a line is about.
type Stage string

// The stages of lines.
const (
	Begun   Stage = "begun"   // a call is about to be carried out
	Ended   Stage = "ended"   // a call has ended, with an outcome
	Counted Stage = "counted" // Count more refusals like the earlier ones of the same subject and code
	Lost    Stage = "lost"    // Count lines before this one could not be written
)

// Outcome is how a call ended.
type Outcome string

// The outcomes of calls.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused" // nothing was changed or shown, because of the caller or the state
	Failed  Outcome = "failed"  // the cluster could not do it now, or it is not known whether it did; Code says which
)

// Line is one line of the audit log.
type Line struct {
	Time    time.Time `json:"time"`   // in UTC, with milliseconds
	Server  string    `json:"server"` // the server that authenticated the caller
	Stage   Stage     `json:"stage"`
	Call    string    `json:"call,omitempty"` // the same in all lines of one call
	Subject string    `json:"subject,omitempty"`
	Token   string    `json:"token,omitempty"` // id of a token, never its secret
	Peer    string    `json:"peer,omitempty"`  // host:port of the other end of the connection, or "unix"

	Operation string   `json:"operation,omitempty"`
	Verb      string   `json:"verb,omitempty"`
	Path      string   `json:"path,omitempty"`
	Objects   []string `json:"objects,omitempty"`      // such as "job/web", at most maxObjects
	More      int      `json:"more_objects,omitempty"` // objects that are left out

	// Program and Arguments say what was run in an instance: its name, and how many arguments it had. They may be secrets.
	Program   string `json:"program,omitempty"`
	Arguments int    `json:"arguments,omitempty"`
	Port      string `json:"port,omitempty"` // of an instance, that was forwarded

	Outcome   Outcome `json:"outcome,omitempty"`
	Code      string  `json:"code,omitempty"` // why it is not done
	RequestID string  `json:"request_id,omitempty"`
	Index     uint64  `json:"index,omitempty"`    // of the entry in the cluster's log; 0: there is none
	Replayed  bool    `json:"replayed,omitempty"` // the entry is that of an earlier request with the same id
	DryRun    bool    `json:"dry_run,omitempty"`
	Millis    int64   `json:"duration_ms,omitempty"`
	Count     int     `json:"count,omitempty"` // of refusals or lines; see Stage
}

// Bounds of the fields of a line.
const (
	maxObjects = 20
	maxText    = 200 // bytes of a text
	maxPath    = 500 // bytes
)

// tokens finds texts that look like a token with its secret, for example if somebody took one for a name.
var tokens = regexp.MustCompile(`os[a-z][0-9]+\.\S{16,}`)

// NewCall returns a value for Line.Call.
func NewCall() string {
	var id [8]byte
	rand.Read(id[:]) // never fails: without randomness, the runtime ends the process
	return hex.EncodeToString(id[:])
}

// clean returns a text without tokens and characters that a terminal would not print, of at most the given size.
func clean(text string, most int) string {
	text = tokens.ReplaceAllString(text, "(secret)")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// encode returns the line as JSON with a final newline. All texts are cleaned.
func (l Line) encode() []byte {
	for _, text := range [...]*string{&l.Server, &l.Call, &l.Subject, &l.Token, &l.Peer, &l.Operation, &l.Verb, &l.Code,
		&l.RequestID, &l.Program, &l.Port} {
		*text = clean(*text, maxText)
	}
	l.Path = clean(l.Path, maxPath)
	objects := l.Objects[:min(len(l.Objects), maxObjects)]
	l.More += len(l.Objects) - len(objects)
	l.Objects = make([]string, len(objects))
	for i, one := range objects {
		l.Objects[i] = clean(one, maxText)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(struct { // can't fail: a line has only texts and numbers
		Time string `json:"time"` // in place of the other one
		Line
	}{l.Time.UTC().Format("2006-01-02T15:04:05.000Z"), l})
	return b.Bytes()
}
