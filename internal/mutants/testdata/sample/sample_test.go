package sample

import (
	"testing"

	"pgregory.net/rapid"
)

func TestBetween(t *testing.T) {
	if !between(1, 1, 5) || !between(1, 4, 5) || between(1, 0, 5) || between(1, 6, 5) {
		t.Fail()
	}
}

func TestAdd(t *testing.T) {
	var c counter
	if sum, err := c.add([]string{"a", "", "b", "-"}); sum != 4 || err != nil {
		t.Fatal(sum, err)
	}
}

func TestKind(t *testing.T) {
	for n, want := range map[int]string{10: "far", -1: "far", 0: "known", 9: "known"} {
		if got := kind(n, func() bool { return true }); got != want {
			t.Errorf("kind(%d) = %q", n, got)
		}
	}
	if kind(1, func() bool { return false }) != "" {
		t.Fail()
	}
}

func TestEndless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if endless(rapid.IntRange(1, 5).Draw(t, "n")) != 0 {
			t.Fatal("not zero")
		}
	})
}
