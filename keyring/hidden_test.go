package keyring_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/keyring"
)

// Nothing that package fmt or json prints of any type contains bytes of a key, not even if the value is in an
// unexported field of another type, where fmt calls no String.
func TestKeysAreNeverPrinted(t *testing.T) {
	b := make([]byte, 40)
	for i := range b[8:] {
		b[8+i] = 0xa1 + byte(i)
	}
	k := must[keyring.Key](t)(keyring.ParseKey(b))
	r, _ := create(t, k)
	d, wrapped := r.WrapNew()
	m := must[keyring.MACKey](t)(r.MACKey(k.ID(), "bodies"))
	values := map[string]any{
		"Key": k, "*Key": &k, "[]Key": r.Keys(), "Ring": r, "DEK": d, "*DEK": &d, "MACKey": m, "*MACKey": &m,
		"fields": struct {
			k keyring.Key
			p *keyring.Key
			s []keyring.Key
			r *keyring.Ring
			d keyring.DEK
			m map[string]keyring.MACKey
			a any
		}{k, &k, r.Keys(), r, d, map[string]keyring.MACKey{"a": m}, k},
		"Fields": struct {
			K keyring.Key
			R *keyring.Ring
			D keyring.DEK
			M keyring.MACKey
		}{k, r, d, m},
		"wrapped": wrapped,
	}
	secrets := [][]byte{b[8:]}
	secrets = append(secrets, keyring.Secrets(d, m)...)
	for name, v := range values {
		var printed strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c", "%U", "%o", "%b"} {
			fmt.Fprintf(&printed, verb+"\n", v)
		}
		asJSON, err := json.Marshal(v)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		printed.Write(asJSON)
		for _, s := range secrets {
			for form, part := range forms(s) {
				if strings.Contains(printed.String(), part) {
					t.Errorf("%s is printed with its key in the form %s", name, form)
				}
			}
		}
	}
	for _, tt := range []struct {
		v    fmt.Stringer
		want string
	}{{k, "[key " + string(k.ID()) + "]"}, {d, "[data key]"}, {m, "[MAC key]"}, {r, r.String()}} {
		if got := fmt.Sprintf("%v %#v", tt.v, tt.v); got != tt.want+" "+tt.want {
			t.Errorf("printed as %s, want %s twice", got, tt.want)
		}
	}
}

// forms returns the beginning of a key as formatting verbs and encodings print it.
func forms(s []byte) map[string]string {
	join := func(verb, sep string) string {
		var parts []string
		for _, c := range s[:4] {
			parts = append(parts, fmt.Sprintf(verb, c))
		}
		return strings.Join(parts, sep)
	}
	return map[string]string{
		"raw": string(s[:4]), "hex": hex.EncodeToString(s[:4]), "HEX": strings.ToUpper(hex.EncodeToString(s[:4])),
		"base64": base64.StdEncoding.EncodeToString(s[:6]), "decimal": join("%d", " "), "decimals": join("%d", ","),
		"go": join("0x%x", ", "), "octal": join("%o", " "), "binary": join("%b", " "), "hex list": join("%x", " "),
		"unicode": join("%U", " "), "quoted": strings.Trim(fmt.Sprintf("%q", s[:4]), `"`),
		"runes": string(bytes.Runes(s[:4])), "latin": join("%c", " "),
	}
}
