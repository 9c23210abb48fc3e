package cli

import (
	"bufio"
	"io"
	"os"
	"strings"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// maxAccessFile bounds how much of a file is read to find an access token.
const maxAccessFile = 4 << 10

// token returns the text of the access token, or "" if none is given. The flag takes precedence over OUTSPAN_TOKEN, and
// that over OUTSPAN_TOKEN_FILE. No secret is ever an argument, which other users of the machine could see.
func (c *connFlags) token(env func(string) string) (string, error) {
	text, from := env("OUTSPAN_TOKEN"), "OUTSPAN_TOKEN"
	if file := term.First(c.tokenFile, env("OUTSPAN_TOKEN_FILE")); file != "" && (text == "" || c.tokenFile != "") {
		var err error
		if text, err = c.readToken(file); err != nil {
			return "", model.Refuse(model.CodeInvalid, "can't read the access token: %v", err).
				WithHint("--token-file and OUTSPAN_TOKEN_FILE name a file with the text of auth token create, " +
					"or - for standard input")
		}
		from = file
	}
	if text = strings.TrimSpace(text); text == "" && from == "OUTSPAN_TOKEN" {
		return "", nil
	}
	token, err := pki.ParseAccessToken(text)
	if err != nil {
		refusal := model.Refuse(model.CodeInvalid, "%s: %s", from, model.Reason(err))
		return "", refusal.WithHint("give the text of: outspan auth token create NAME")
	}
	return token.Reveal(), nil
}

func (c *connFlags) readToken(file string) (string, error) {
	if file == "-" {
		line, err := bufio.NewReader(io.LimitReader(c.in, maxAccessFile)).ReadString('\n')
		if err == io.EOF {
			err = nil
		}
		return line, err
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 && c.note != nil {
		c.note("warning: every user of this machine can read the access token in %s; change that with: chmod 600 %[1]s",
			file)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAccessFile))
	return string(text), err
}
