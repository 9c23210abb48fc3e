package model

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestDurationText(t *testing.T) {
	tests := []struct {
		text string
		want Duration
		back string // the printed form, if it differs from text
	}{
		{"0s", 0, ""},
		{"1ms", 1, ""},
		{"30s", 30 * Second, ""},
		{"1h30m", 90 * Minute, ""},
		{"90m", 90 * Minute, "1h30m"},
		{"2d", 48 * Hour, "48h"},
		{"1.5s", 1500, "1s500ms"},
		{"1.001s", 1001, "1s1ms"}, // exact, although no float64 is exactly 1.001
		{"0.5h", 30 * Minute, "30m"},
		{"1h1m1s1ms", Hour + Minute + Second + 1, ""},
		{"forever", Forever, ""},
		{"none", Forever, "forever"},
		{"36500d", 100 * 365 * 24 * Hour, "876000h"},
	}
	for _, tt := range tests {
		got, err := ParseDuration(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseDuration(%q) = %d, %v, want %d", tt.text, got, err, tt.want)
		}
		if tt.back == "" {
			tt.back = tt.text
		}
		if got.String() != tt.back {
			t.Errorf("%q prints as %q, want %q", tt.text, got, tt.back)
		}
	}
	for _, text := range []string{"", "30", "s", "-5s", "5 s", "1y", "1..5s", "1s2", "forever1s", "36501d", "1e3s", "NaNs",
		"99999999999999999999h", "½s", "١s"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %s, want an error", text, got)
		}
	}
}

func TestDurationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Duration(rapid.Int64Range(0, int64(100*365*24*Hour)).Draw(t, "ms"))
		if rapid.IntRange(0, 20).Draw(t, "forever") == 20 {
			want = Forever
		}
		data, err := json.Marshal(map[string]Duration{"d": want})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]Duration{}
		if err := json.Unmarshal(data, &got); err != nil || got["d"] != want {
			t.Fatalf("%d became %s became %d (%v)", want, data, got["d"], err)
		}
	})
}

// A stored row can contain any int64 as a duration. Printing it must not panic, because that would end the server.
func TestOddDurationsPrint(t *testing.T) {
	for d, want := range map[Duration]string{-5 * Second: "-5s", -Forever: "-forever",
		math.MinInt64: "-forever", Forever - 1: ""} {
		if got := d.String(); got != want && want != "" {
			t.Errorf("%d prints as %q, want %q", int64(d), got, want)
		}
	}
}

func TestTimeAdds(t *testing.T) {
	tests := []struct {
		at   Time
		d    Duration
		want Time
	}{
		{1000, Second, 2000},
		{1000, -Second, 0},
		{Never, Second, Never},
		{Never, -Second, Never},
		{1000, Forever, Never},
		{1000, Forever - 1, Never}, // the sum overflows, but must not become a time in the past
		{0, Forever - 1, Never - 1},
	}
	for _, tt := range tests {
		if got := tt.at.Add(tt.d); got != tt.want {
			t.Errorf("%d + %d = %d, want %d", tt.at, tt.d, got, tt.want)
		}
	}
	if got := Time(5000).Sub(2000); got != 3*Second {
		t.Errorf("Sub gives %s", got)
	}
}

func TestTimeLeft(t *testing.T) {
	tests := []struct {
		at, now Time
		want    Duration
	}{
		{595_881, 0, 9*Minute + 56*Second},
		{2000, 1000, Second},
		{1001, 1000, Second},
		{1000, 1000, 0},
		{1000, 5000, 0},
		{Never, 5000, Forever},
	}
	for _, tt := range tests {
		if got := tt.at.Left(tt.now); got != tt.want {
			t.Errorf("from %d to %d are %s left, want %s", tt.now, tt.at, got, tt.want)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, text := range []string{"30s", "1h30m", "1.5s", "forever", "1e3s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		if again, err := ParseDuration(d.String()); err != nil || again != d {
			t.Errorf("%q is %d, printed %s, read again as %d (%v)", text, int64(d), d, again, err)
		}
	})
}

func ExampleDuration_String() {
	fmt.Println(90*Minute, 1500*Millisecond, Forever)
	// Output: 1h30m 1s500ms forever
}
