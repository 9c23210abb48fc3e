package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Code is the reason why something can't be done now. The set of codes is closed. JSON, metrics and scripts contain
// codes, so no code is ever renamed.
type Code string

// Error is the error of an operation that was refused or that failed. It has a code for programs and a message for
// people. Hint, if it is not empty, says what to do next.
type Error struct {
	Code    Code   `json:"code" cbor:"1,keyasint"`
	Message string `json:"message" cbor:"2,keyasint"`
	Hint    string `json:"hint,omitempty" cbor:"3,keyasint,omitempty"`

	// Key is the place of the mistake in a job: the names of blocks, their labels and the key, joined by "/", such as
	// "group/web/check/alive/path". A block without a label has its index instead, from 0. Key is neither stored nor sent.
	Key string `json:"-" cbor:"-"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("%s (%s)", e.Message, e.Code)
	}
	return fmt.Sprintf("%s (%s): %s", e.Message, e.Code, e.Hint)
}

// Is makes errors.Is(err, &Error{Code: c}) true for any error with the code c.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// WithHint returns a copy of e with a hint that says what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// Reason returns the message of an error for use inside another message. The code and the hint of an Error are omitted.
func Reason(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// Clip cuts a string from another process to 200 bytes, for messages and logs. It marks a cut with "...".
func Clip(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// Refuse returns an Error with a formatted message, which should name what is refused.
func Refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// RefuseAt returns an Error for a mistake in a job's spec. The parameter key is a result of KeyPath. Code: invalid.
func RefuseAt(key, format string, args ...any) *Error {
	e := Refuse(CodeInvalid, format, args...)
	e.Key = key
	return e
}

// at returns a copy of e with KeyPath(path...) as its Key.
func (e *Error) at(path ...string) *Error {
	c := *e
	c.Key = KeyPath(path...)
	return &c
}

// KeyPath joins the parts of a key with "/" and omits empty ones.
func KeyPath(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "/")
}

// NoSuch returns an Error for a name that does not exist. Its hint suggests the names in near. If near is empty, the
// hint is a command that lists what exists. Code: not_found.
func NoSuch(noun, name string, near []string) *Error {
	refusal := Refuse(CodeNotFound, "there is no %s %q", noun, name)
	if len(near) > 0 {
		return refusal.WithHint("did you mean %s? what changes something takes the whole name", strings.Join(near, " or "))
	}
	return refusal.WithHint("list them with: outspan %s", listVerb(noun))
}

func listVerb(noun string) string {
	switch noun {
	case "transfer":
		return "volume ls"
	case "backup":
		return "volume backups"
	case "server":
		return "server members"
	}
	return noun + " ls"
}
