package term

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Span formats a duration roughly: as seconds, as minutes and seconds, as hours and minutes, or, from 48 hours, as
// days. A negative duration is shown as 0s.
func Span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Stamp formats a time in the user's time zone. It returns "" if t is nil or zero.
func Stamp(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// YesNo returns "yes" or "no".
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// LabelsText formats labels as a sorted list: "a=1,b=2".
func LabelsText(labels map[string]string) string {
	var parts []string
	for k, v := range labels {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// Number formats n. It returns "" if n is 0.
func Number[T ~int | ~int64 | ~uint64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// First returns the first string that is not empty, or "" if all are empty.
func First(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// Joined returns the words as a list in a sentence: "a, b and c". It returns "none" if there are no words.
func Joined(words []string) string {
	switch len(words) {
	case 0:
		return "none"
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
