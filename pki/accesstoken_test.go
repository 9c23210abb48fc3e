package pki_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/pki"
)

func TestAccessToken(t *testing.T) {
	token := pki.NewAccessToken()
	text := token.Reveal()
	if len(text) != 61 || !token.ID().Valid() {
		t.Fatalf("%d bytes, id %s", len(text), token.ID())
	}
	hash := token.Hash()
	again, err := pki.ParseAccessToken(text + "\r\n")
	if err != nil || again.ID() != token.ID() || !again.Matches(hash[:]) {
		t.Fatalf("read again: %v, %v", again, err)
	}
	other := pki.NewAccessToken()
	if other.Matches(hash[:]) || (pki.AccessToken{}).Matches(make([]byte, 32)) || other.ID() == token.ID() {
		t.Error("another token, or none, matches")
	}
	secret := text[strings.LastIndex(text, ".")+1:]
	raw, err := json.Marshal(map[string]any{"token": token})
	for _, shown := range []string{string(raw), fmt.Sprintf("%v %+v %s", token, token, token)} {
		if err != nil || strings.Contains(shown, secret) {
			t.Errorf("shown as %s, %v", shown, err)
		}
	}
}

func TestParseAccessToken(t *testing.T) {
	text := pki.NewAccessToken().Reveal()
	parts := strings.Split(text, ".")
	for name, tt := range map[string]struct{ text, says string }{
		"nothing":        {"", "is empty"},
		"a join token":   {"osj1.agent.aaaa.bbbb", "is a join token"},
		"a word":         {"hello", "does not begin"},
		"a secret alone": {parts[2], "does not begin"},
		"two lines":      {text + "\n" + text, "bytes in"},
		"cut":            {text[:len(text)-3], "copy it whole, as osa1.ID.SECRET (invalid)"},
		"another id":     {parts[0] + ".aaaaaaaaaaaa." + parts[2], "damaged"},
		"no base64":      {text[:len(text)-1] + "!", "damaged"},
	} {
		_, err := pki.ParseAccessToken(tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), parts[2]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
