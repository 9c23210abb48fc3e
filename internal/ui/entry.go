package ui

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// codeLife is how long the code is good.
const codeLife = time.Minute

// entry lets one browser in: it exchanges a code, which is good once and for a short time, for the secret of the page.
// It is safe for concurrent use.
type entry struct {
	code, secret string
	now          func() time.Time
	until        time.Time

	mu   sync.Mutex
	used bool
}

func newEntry(now func() time.Time) *entry {
	return &entry{code: randomText(), secret: randomText(), now: now, until: now().Add(codeLife)}
}

// randomText returns 256 random bits in hexadecimal.
func randomText() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return hex.EncodeToString(raw[:])
}

// exchange returns the secret for the code. Code: page_not_entered.
func (e *entry) exchange(code string) (string, error) {
	right := same(code, e.code)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !right || e.used || e.now().After(e.until) {
		return "", notEntered("this link is not good: it was used before, is older than %s, or is not of this page", codeLife)
	}
	e.used = true
	return e.secret, nil
}

// knows reports whether the secret is that of the page.
func (e *entry) knows(secret string) bool { return same(secret, e.secret) }

// same compares two texts in a time that tells nothing about where they differ.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// codeNotEntered is the code of the answer to a request without the secret, and of a link that is not good.
const codeNotEntered model.Code = "page_not_entered"

func notEntered(format string, args ...any) error {
	return model.Refuse(codeNotEntered, format, args...).WithHint("open a new page: outspan ui")
}

// redirect is the file that leads a browser to the page.
var redirect = template.Must(template.New("redirect").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>outspan</title><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={{.}}"><p><a href="{{.}}">Open the page</a></p></html>
`))

// writeRedirect writes the file in a new directory, which only this user can enter. It returns the path of the file.
func writeRedirect(parent, address string) (string, error) {
	dir, err := os.MkdirTemp(parent, "outspan-ui-") // mode 0700
	if err != nil {
		return "", cantWrite(err)
	}
	path := filepath.Join(dir, "open.html")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", cantWrite(errors.Join(err, os.RemoveAll(dir)))
	}
	if err = errors.Join(redirect.Execute(f, address), f.Close()); err != nil {
		return "", cantWrite(errors.Join(err, os.RemoveAll(dir)))
	}
	return path, nil
}

func cantWrite(err error) error {
	return model.Refuse(model.CodeFile, "can't write the file that opens the page: %v", err).
		WithHint("set XDG_RUNTIME_DIR or TMPDIR to a directory of yours")
}

// removeRedirect removes the file and its directory. It does nothing if they are gone.
func removeRedirect(path string) error {
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		return fmt.Errorf("remove the file that opens the page: %w", err)
	}
	return nil
}
