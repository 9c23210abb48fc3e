package api

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Facts are the results of a role check: true, false, numbers and short strings. All values are stored as strings. In
// JSON, true, false and numbers in their shortest form are written without quotes.
type Facts map[string]string

// MarshalJSON implements json.Marshaler.
func (f Facts) MarshalJSON() ([]byte, error) {
	typed := make(map[string]any, len(f))
	for name, text := range f {
		typed[name] = text
		n, err := strconv.ParseFloat(text, 64)
		switch {
		case text == "true" || text == "false":
			typed[name] = text == "true"
		case err == nil && isWhole(text), err == nil && strconv.FormatFloat(n, 'f', -1, 64) == text && n-n == 0:
			typed[name] = json.Number(text)
		}
	}
	return json.Marshal(typed)
}

// isWhole reports whether text is a 64-bit integer, signed or unsigned, in its shortest form.
func isWhole(text string) bool {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return strconv.FormatInt(n, 10) == text
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return err == nil && strconv.FormatUint(n, 10) == text
}

// UnmarshalJSON implements json.Unmarshaler. It also accepts true, false and numbers in quotes.
func (f *Facts) UnmarshalJSON(raw []byte) error {
	var typed map[string]json.RawMessage
	if err := json.Unmarshal(raw, &typed); err != nil {
		return fmt.Errorf("read facts: %w", err)
	}
	*f = make(Facts, len(typed))
	for name, value := range typed {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		(*f)[name] = text
	}
	return nil
}
