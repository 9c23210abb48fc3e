package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// logins is the directory with the access tokens of outspan login: a file for each address of a server.
type logins struct{ dir string }

// loginsOf returns the directory of the user. ok is false if the environment names neither a directory for
// configuration nor a home.
func loginsOf(env func(string) string) (l logins, ok bool) {
	base := env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) {
		if base = env("HOME"); !filepath.IsAbs(base) {
			return logins{}, false
		}
		base = filepath.Join(base, ".config")
	}
	return logins{filepath.Join(base, "outspan", "logins")}, true
}

// file returns the file for an address such as https://10.0.0.1:7640.
func (l logins) file(address string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, strings.ToLower(strings.TrimPrefix(address, "https://")))
	return filepath.Join(l.dir, "token-"+name)
}

// load returns the access token of the first address that has one, or "". Code: file if a file can't be read, or if
// others may read it.
func (l logins) load(addresses []string) (string, error) {
	for _, address := range addresses {
		if !strings.HasPrefix(address, "https://") {
			continue
		}
		file := l.file(address)
		info, err := os.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && info.Mode().Perm()&0o077 != 0:
			return "", model.Refuse(model.CodeFile, "others may read the access token in %s", file).
				WithHint("chmod 600 %s; if somebody may have read it: outspan logout", file)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", model.Refuse(model.CodeFile, "the access token of your login can't be read: %v", err).
				WithHint("sign in again: outspan login")
		}
		if token := strings.TrimSpace(string(text)); token != "" {
			return token, nil
		}
	}
	return "", nil
}

// loginAt returns the access token of the user's login to one of the addresses, or "" without one. Codes: those of
// load.
func loginAt(env func(string) string, addresses []string) (string, error) {
	l, ok := loginsOf(env)
	if !ok {
		return "", nil
	}
	return l.load(addresses)
}

// hasSignedIn reports whether the user has signed in on this machine before.
func hasSignedIn(env func(string) string) bool {
	l, ok := loginsOf(env)
	if !ok {
		return false
	}
	_, err := os.Stat(l.dir)
	return err == nil
}

// save stores an access token for all addresses. Code: file.
func (l logins) save(addresses []string, token string) error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return notSaved(err)
	}
	for _, address := range addresses {
		if !strings.HasPrefix(address, "https://") {
			continue
		}
		f, err := os.CreateTemp(l.dir, "new-*") // mode 0600
		if err != nil {
			return notSaved(err)
		}
		_, err = f.WriteString(token + "\n")
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), l.file(address))
		}
		if err != nil {
			return notSaved(errors.Join(err, os.Remove(f.Name())))
		}
	}
	return nil
}

func notSaved(err error) error {
	return model.Refuse(model.CodeFile, "the access token can't be stored: %v", err).
		WithHint("set XDG_CONFIG_HOME to a directory of yours, and sign in again: outspan login")
}

// remove removes the access tokens of all addresses. Code: file.
func (l logins) remove(addresses []string) error {
	for _, address := range addresses {
		if err := os.Remove(l.file(address)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return model.Refuse(model.CodeFile, "the access token can't be removed: %v", err)
		}
	}
	return nil
}

// noHome is the refusal of commands that need the directory of logins.
func noHome() error {
	return term.Usage("neither XDG_CONFIG_HOME nor HOME names a directory for the access token").
		WithHint("set HOME, or use an access token of a script: OUTSPAN_TOKEN_FILE")
}
