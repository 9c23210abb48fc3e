package transport

import (
	"testing"
	"time"
)

func TestNearEnd(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	for _, tt := range []struct {
		age, left time.Duration
		want      bool
	}{
		{365 * day, 20 * day, false},
		{365 * day, 13 * day, true},
		{365 * day, -time.Hour, true},
		{2 * day, 28 * day, false},
		{time.Hour, 23 * time.Hour, false}, // more than a third of a short life is left
		{23 * time.Hour, time.Hour, true},
	} {
		life := Lifetime{From: now.Add(-tt.age), Until: now.Add(tt.left)}
		if got := life.NearEnd(now); got != tt.want {
			t.Errorf("%s old, %s left: %v, want %v", tt.age, tt.left, got, tt.want)
		}
	}
	if (Lifetime{}).NearEnd(now) {
		t.Error("what is not known ends")
	}
}
