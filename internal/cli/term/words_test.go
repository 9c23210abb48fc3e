package term

import (
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

func TestNearest(t *testing.T) {
	names := []string{"cordon", "disable", "drain", "enable", "ls", "status", "uncordon"}
	for word, want := range map[string]string{
		"drian": "drain", "stauts": "status", "lss": "ls", "sl": "ls", "stat": "status", "uncordn": "uncordon",
		"unrelated": "", "x": "", "": "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

// Names and messages come from outside, so their control characters must not reach the terminal.
func TestPageIsPrintable(t *testing.T) {
	p := &Page{Colour: true}
	Rows(p, []string{"ready", "\x1b[31mred\nhead"}, []Column[string]{
		{Head: "state", Cell: func(s string) string {
			return s
		}}, {Head: "hidden", Wide: true, Cell: func(s string) string { return s }},
	})
	if want := "STATE\n\x1b[32mready\x1b[0m\n?[31mred head\n"; p.String() != want {
		t.Errorf("got %q, want %q", p.String(), want)
	}
}

func TestSpanAndSizes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 900 * time.Millisecond: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m01s",
		3*time.Hour + 4*time.Minute: "3h04m", 50 * time.Hour: "2d",
	} {
		if got := Span(d); got != want {
			t.Errorf("span(%s) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 64 << 20: "64MiB",
		24105 << 20: "23GiB", 1500 << 10: "1500KiB"} {
		if got := model.SizeText(n); got != want {
			t.Errorf("sizeText(%d) = %q, want %q", n, got, want)
		}
	}
}
