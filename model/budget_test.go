package model

import (
	"testing"
)

// An ActorRate can be read from the text that String returns. Malformed texts are refused.
func TestActorRateText(t *testing.T) {
	for text, want := range map[string]ActorRate{"none": {}, "5/1m": {5, Minute}, "1/1h30m": {1, Hour + 30*Minute}} {
		var got ActorRate
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is read as %+v, %v; want %+v", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("%+v is written as %q, want %q", got, got, text)
		}
	}
	for _, text := range []string{"", "5", "5/", "/1m", "0/1m", "-1/1m", "5/1ms", "5/forever",
		"x/1m", "5/1m/1m", "99999/1m"} {
		var got ActorRate
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}
