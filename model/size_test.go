package model

import (
	"strings"
	"testing"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0B": 0, "7B": 7, "1KB": 1e3, "2MB": 2e6, "3GB": 3e9, "4TB": 4e12,
		"1KiB": 1024, "128MiB": 128 << 20, "3GiB": 3 << 30, "2TiB": 2 << 40, "1.5 GiB": 3 << 29, "90KB": 90_000,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"": "is not a size", "128": "is not a size", "MiB": "is not a size", "-1B": "is not a size",
		"1.2.3MB": "is not a size", "5mb": `the unknown unit "mb"`, "5PB": "the units are B, KB,",
		"9000000TiB": "larger than any machine",
	} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %d, %v; want an error with %q", text, got, err, says)
		}
	}
}
