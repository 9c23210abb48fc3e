package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A role check must answer with one flat JSON object of at most maxFacts facts and maxFactsText bytes. Any other answer
// is refused as a whole, because an answer that is only partly understood could make an unsafe stop look safe.
const (
	maxFacts     = 16
	maxFactsText = 4 << 10
	maxFactName  = 48 // bytes
	maxFactValue = 64 // bytes, after normalisation
)

// facts has the facts of an instance, by name. The values are normalised: "true", "false", a decimal number, or a short
// string. A nil map means that no fact is known. A map is never changed once parseFacts has returned it.
type facts = map[string]string

func parseFacts(text []byte) (facts, error) {
	switch {
	case len(text) > maxFactsText:
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxFactsText)
	case !utf8.Valid(text):
		return nil, errors.New("the answer is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("the answer is not a JSON object")
	}
	found := facts{}
	for d.More() {
		if err := parseFact(d, found); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("the answer is not a whole JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object of the answer")
	}
	maps.DeleteFunc(found, func(_, value string) bool { return value == "" }) // an empty string is no fact
	return found, nil
}

// parseFact reads one fact from d and adds it to found. It refuses a name that is in found already.
func parseFact(d *json.Decoder, found facts) error {
	t, err := d.Token()
	name, ok := t.(string)
	if err != nil || !ok {
		return errors.New("the answer is not a whole JSON object")
	}
	if !validFactName(name) {
		return fmt.Errorf("fact name %.60q is not 1 to %d lower-case letters, digits, '_' or '.'", name, maxFactName)
	}
	if _, twice := found[name]; twice {
		return fmt.Errorf("fact %s is there twice", name)
	}
	if len(found) == maxFacts {
		return fmt.Errorf("there are more than %d facts", maxFacts)
	}
	if t, err = d.Token(); err != nil {
		return errors.New("the answer is not a whole JSON object")
	}
	if found[name], err = factValue(t); err != nil {
		return fmt.Errorf("fact %s: %w", name, err)
	}
	return nil
}

func validFactName(name string) bool {
	return name != "" && len(name) <= maxFactName && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '.')
	}) < 0
}

// factValue returns a value as a normalised string, so that equal values have equal strings. Only booleans, numbers and
// short ASCII strings are allowed.
func factValue(t json.Token) (string, error) {
	switch v := t.(type) {
	case bool:
		return strconv.FormatBool(v), nil
	case json.Number:
		return numberValue(v.String())
	case string:
		if len(v) > maxFactValue || strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
			return "", fmt.Errorf("a text is at most %d printable ASCII characters", maxFactValue)
		}
		return v, nil
	}
	return "", errors.New("only true, false, numbers and texts are facts")
}

// numberValue normalises a number. Integers stay exact; 1.50, 15e-1 and 1.5 become the same string. It refuses integers
// that don't fit in 64 bits, other numbers whose absolute value is 2^63 or more, and results of more than maxFactValue
// bytes.
func numberValue(text string) (string, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return strconv.FormatInt(n, 10), nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return strconv.FormatUint(n, 10), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !strings.ContainsAny(text, ".eE") || math.Abs(f) >= 1<<63 {
		return "", fmt.Errorf("the number %.24s is too large", text)
	}
	if f == 0 {
		return "0", nil // FormatFloat would return "-0" for minus zero
	}
	short := strconv.FormatFloat(f, 'f', -1, 64)
	if len(short) > maxFactValue {
		return "", fmt.Errorf("the number %.24s has more than %d digits", text, maxFactValue)
	}
	return short, nil
}
