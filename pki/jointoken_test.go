package pki_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// In fixedToken, the hash of the root is the bytes 0, 1, 2 and so on, and the secret is the bytes 200, 201 and so on.
const fixedToken = "osj1.agent.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8.yMnKy8zNzs_Q0dLT1NXW19jZ2ts"

// Stored hashes and ids of tokens must stay the same for ever, so this test has their values.
func TestJoinTokenValues(t *testing.T) {
	agent, server := parsed(t, fixedToken), parsed(t, strings.Replace(fixedToken, "agent", "server", 1))
	if agent.Role() != pki.RoleAgent || agent.ID() != "okdu6lsep6hy" || agent.Reveal() != fixedToken {
		t.Errorf("got %s, %s, %s", agent.Role(), agent.ID(), agent.Reveal())
	}
	const want = "503c12dba88e6f2b5433454d891fc28d5859a65c55c35dd47bb50ea8263ad6b9"
	if got := fmt.Sprintf("%x", agent.Verifier()); got != want {
		t.Errorf("the verifier is %s, want %s", got, want)
	}
	if server.ID() != agent.ID() || server.Verifier() == agent.Verifier() {
		t.Error("the role must change the verifier, and only that")
	}
}

func TestNewJoinToken(t *testing.T) {
	root := newRoot(t, nil)
	seen := map[string]bool{}
	for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent} {
		token, err := pki.NewJoinToken(role, root.cert)
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.Sum256(root.cert.RawSubjectPublicKeyInfo)
		form := regexp.MustCompile(`^osj1\.` + string(role) + `\.` +
			regexp.QuoteMeta(base64.RawURLEncoding.EncodeToString(hash[:])) + `\.[A-Za-z0-9_-]{27}$`)
		if !form.MatchString(token.Reveal()) {
			t.Errorf("the token of a %s does not have the form %s", role, form)
		}
		if again := parsed(t, token.Reveal()); again.ID() != token.ID() || again.Verifier() != token.Verifier() {
			t.Errorf("%s came back as %s", token, again)
		}
		seen[token.ID()] = true
	}
	if len(seen) != 2 {
		t.Error("two tokens have the same id")
	}
	leaf := root.issue(t, "outspan://c1/server/s1", nil)
	_, err := pki.NewJoinToken(pki.RoleServer, leaf.Leaf)
	wantCode(t, err, model.CodeInvalid, "needs a root", "server/s1")
	_, err = pki.NewJoinToken(pki.RoleServer, root.between(t).cert)
	wantCode(t, err, model.CodeInvalid, "signed itself")
	_, err = pki.NewJoinToken(pki.RoleCLI, root.cert)
	wantCode(t, err, model.CodeInvalid, "cli can't join", "outspan tls cert create --cli")
	_, err = pki.NewJoinToken("root", root.cert)
	wantCode(t, err, model.CodeInvalid, `role "root" is unknown`, "server or agent")
}

func TestParseJoinToken(t *testing.T) {
	for _, end := range []string{"\n", "\r\n"} {
		if got := parsed(t, fixedToken+end); got.Reveal() != fixedToken {
			t.Errorf("with %q at the end: %s", end, got)
		}
	}
	hash, secret := strings.Split(fixedToken, ".")[2], strings.Split(fixedToken, ".")[3]
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"empty":             {"", []string{"is empty", "outspan token create"}},
		"a line break":      {"\n", []string{"is empty"}},
		"two line breaks":   {fixedToken + "\n\n", []string{"line break", "in one line"}},
		"broken in two":     {fixedToken[:40] + "\n" + fixedToken[40:], []string{"line break"}},
		"quoted":            {`"` + fixedToken + `"`, []string{`does not begin with "osj1."`}},
		"a space before":    {" " + fixedToken, []string{"a space"}},
		"not ASCII":         {fixedToken[:80] + "é", []string{"another character"}},
		"a whole file":      {rep(fixedToken, 9), []string{"738 bytes", "only the token"}},
		"newer":             {"osj2" + fixedToken[4:], []string{"the format osj2", "reads osj1", "install the version"}},
		"much newer":        {"osj12.anything", []string{"the format osj12"}},
		"no number":         {"osj." + secret, []string{"does not begin with"}},
		"a long number":     {"osj1234." + secret, []string{"does not begin with"}},
		"the secret alone":  {secret, []string{"does not begin with", "copy the whole token"}},
		"cut off":           {"osj1.agent." + hash, []string{"3 parts", "not 4"}},
		"continued":         {fixedToken + ".x", []string{"5 parts"}},
		"cli":               {"osj1.cli." + hash + "." + secret, []string{"cli can't join", "outspan tls cert create"}},
		"unknown role":      {"osj1." + secret + "." + hash + ".x", []string{"neither server nor agent"}},
		"upper case role":   {"osj1.Agent." + hash + "." + secret, []string{"neither server nor agent"}},
		"no hash":           {"osj1.agent.." + secret, []string{"hash of the root", "0 characters, not 43"}},
		"short secret":      {fixedToken[:len(fixedToken)-1], []string{"the secret", "26 characters, not 27"}},
		"long secret":       {fixedToken + "A", []string{"the secret", "28 characters, not 27"}},
		"padding":           {fixedToken[:len(fixedToken)-1] + "=", []string{"the secret", "wrong character"}},
		"standard alphabet": {strings.Replace(fixedToken, "AAEC", "+/EC", 1), []string{"hash of", "wrong character"}},
		"not canonical":     {fixedToken[:len(fixedToken)-1] + "t", []string{"the secret", "wrong character"}},
		"parts exchanged":   {"osj1.agent." + secret + "." + hash, []string{"hash of the root", "27 characters, not 43"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pki.ParseJoinToken(tt.text)
			wantCode(t, err, model.CodeInvalid, tt.want...)
			if strings.Contains(err.Error(), secret[:8]) {
				t.Errorf("the error shows the secret: %v", err)
			}
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Hint == "" {
				t.Errorf("%v does not say what to do", err)
			}
		})
	}
}

// Everything that formats a value by itself prints the token's id and not the secret, in any encoding.
func TestJoinTokenHidesSecret(t *testing.T) {
	token := parsed(t, fixedToken)
	type shown struct{ Token pki.JoinToken }
	type hidden struct{ token pki.JoinToken }
	outputs := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%t"} {
		for _, value := range []any{token, &token, shown{token}, &shown{token}, hidden{token}, &hidden{token},
			[]pki.JoinToken{token}, []hidden{{token}}, map[string]pki.JoinToken{"a": token}} {
			outputs[fmt.Sprintf("%s of %T", verb, value)] = fmt.Sprintf(verb, value)
		}
	}
	for _, inJSON := range []bool{true, false} {
		var b bytes.Buffer
		log := hclog.New(&hclog.LoggerOptions{Output: &b, JSONFormat: inJSON})
		log.Info("joining", "token", token, "pointer", &token, "hidden", hidden{token})
		outputs[fmt.Sprintf("log, JSON %v", inJSON)] = b.String()
		if !strings.Contains(b.String(), token.ID()) {
			t.Errorf("the log does not name the token: %s", b.String())
		}
	}
	encoded, err := json.Marshal(shown{token})
	if want := `{"Token":"join token okdu6lsep6hy (agent)"}`; err != nil || string(encoded) != want {
		t.Errorf("got JSON %s, %v; want %s", encoded, err, want)
	}
	text := strings.Split(fixedToken, ".")[3]
	raw, _ := base64.RawURLEncoding.DecodeString(text)
	secrets := []string{text, string(raw), hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw))}
	for _, verb := range []string{"%v", "%#v", "%d", "%x", "%X", "%o", "%b", "%c", "%s", "%q"} {
		list := fmt.Sprintf(verb, raw[8:])
		array := fmt.Sprintf(verb, [12]byte(raw[8:]))
		secrets = append(secrets, strings.Trim(list, "[]"), strings.Trim(array, "[]"))
	}
	for name, output := range outputs {
		for _, secret := range secrets {
			if strings.Contains(output, secret) {
				t.Errorf("%s shows the secret: %s", name, output)
			}
		}
	}
}

func TestJoinTokenVerify(t *testing.T) {
	token, root := parsed(t, fixedToken), newRoot(t, nil)
	stored := token.Verifier()
	if !token.Verify(stored[:]) {
		t.Error("its own verifier was refused")
	}
	other, err := pki.NewJoinToken(pki.RoleAgent, root.cert)
	if err != nil {
		t.Fatal(err)
	}
	asServer := parsed(t, strings.Replace(fixedToken, "agent", "server", 1))
	var none pki.JoinToken
	zero := none.Verifier()
	for name, verified := range map[string]bool{
		"another token":     other.Verify(stored[:]),
		"an edited role":    asServer.Verify(stored[:]),
		"a short verifier":  token.Verify(stored[:31]),
		"a long verifier":   token.Verify(append(stored[:], 0)),
		"an empty verifier": token.Verify(nil),
		"no token":          none.Verify(zero[:]),
	} {
		if verified {
			t.Errorf("%s was accepted", name)
		}
	}
	for i := range stored {
		stored[i] ^= 1
		if token.Verify(stored[:]) {
			t.Errorf("a verifier with another byte %d was accepted", i)
		}
		stored[i] ^= 1
	}
	if none.ID() != "" || none.Reveal() != "" || none.Role() != "" || none.String() != "no join token" {
		t.Errorf("no token shows as %q, %q, %q, %q", none.ID(), none.Reveal(), none.Role(), none)
	}
}

// A text that is accepted is the only text of its token. No error repeats a long part of the text.
func FuzzParseJoinToken(f *testing.F) {
	f.Add(fixedToken)
	f.Add(fixedToken + "\n")
	f.Add("osj2" + fixedToken[4:])
	f.Add(strings.Replace(fixedToken, "agent", "cli", 1))
	f.Add(fixedToken[:len(fixedToken)-1] + "t")
	f.Add("yMnKy8zNzs_Q0dLT1NXW19jZ2ts")
	words := regexp.MustCompile(`[A-Za-z0-9_+/=-]{12,}`)
	f.Fuzz(func(t *testing.T, text string) {
		token, err := pki.ParseJoinToken(text)
		if err == nil {
			verifier := token.Verifier()
			if token.Reveal() != strings.TrimRight(text, "\r\n") || !token.Verify(verifier[:]) || len(token.ID()) != 12 {
				t.Fatalf("%q came back as %q", text, token.Reveal())
			}
			return
		}
		if !errors.Is(err, &model.Error{Code: model.CodeInvalid}) {
			t.Fatalf("refused with %v", err)
		}
		for _, word := range words.FindAllString(text, -1) {
			if strings.Contains(err.Error(), word) {
				t.Fatalf("%v repeats %q", err, word)
			}
		}
	})
}

func parsed(t testing.TB, text string) pki.JoinToken {
	t.Helper()
	token, err := pki.ParseJoinToken(text)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func wantCode(t testing.TB, err error, code model.Code, parts ...string) {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got error %v, want code %s", err, code)
	}
	for _, part := range parts {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("error %q does not say %q", e, part)
		}
	}
}
