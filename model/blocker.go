package model

import (
	"fmt"
	"strings"
)

// namedOfSum is the largest number of names that AFew lists.
const namedOfSum = 3

// BlockerSum combines blockers that are equal except for the instance or volume that they name. A sum of one blocker
// contains that blocker unchanged. In a sum of several, the embedded Blocker names no instance or volume, and its
// messages say "the instance" and VOLUME instead.
type BlockerSum struct {
	Blocker
	Instances []InstanceID
	Volumes   []VolumeID
	Count     int
}

// SumBlockers returns one BlockerSum for all blockers that are equal except for the instance or volume that they name.
// The sums are in the order of their first blockers.
func SumBlockers(all []Blocker) []BlockerSum {
	var sums []BlockerSum
	at := map[Blocker]int{}
	for _, b := range all {
		plain := unnamed(b)
		i, known := at[plain]
		if !known {
			i = len(sums)
			at[plain] = i
			sums = append(sums, BlockerSum{Blocker: b})
		} else {
			sums[i].Blocker = plain
		}
		sum := &sums[i]
		sum.Count++
		if b.Instance != "" {
			sum.Instances = append(sum.Instances, b.Instance)
		}
		if b.Volume != "" {
			sum.Volumes = append(sum.Volumes, b.Volume)
		}
	}
	return sums
}

// unnamed returns b without its instance and volume, and with messages that fit any instance and volume.
func unnamed(b Blocker) Blocker {
	var old []string
	if id := string(b.Instance); id != "" {
		old = append(old, "instance "+id, "the instance", id, "the instance")
	}
	if b.Volume != "" {
		old = append(old, string(b.Volume), "VOLUME")
	}
	names := strings.NewReplacer(old...)
	return Blocker{Code: b.Code, Message: names.Replace(b.Message), Unblock: names.Replace(b.Unblock)}
}

// Who names the blocked instances, such as "instance A" or "3 instances (A, B, C)". It returns "" if no instance is
// blocked.
func (s BlockerSum) Who() string {
	if s.Count == 1 && s.Instance != "" {
		return "instance " + string(s.Instance)
	}
	return s.several("instance", texts(s.Instances))
}

// What names the blocked volumes, in the same form as Who. It returns "" if no volume is blocked.
func (s BlockerSum) What() string {
	if s.Count == 1 && s.Volume != "" {
		return "volume " + string(s.Volume)
	}
	return s.several("volume", texts(s.Volumes))
}

func (s BlockerSum) several(noun string, names []string) string {
	switch n := len(names); {
	case n == 0:
		return ""
	case n == 1:
		return noun + " " + names[0]
	default:
		return fmt.Sprintf("%d %ss (%s)", n, noun, AFew(names))
	}
}

// AFew lists the names, or the first few and the number of the others: "a, b, c and 2 more".
func AFew(names []string) string {
	if more := len(names) - namedOfSum; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedOfSum], ", "), more)
	}
	return strings.Join(names, ", ")
}

func texts[T ~string](all []T) []string {
	out := make([]string, len(all))
	for i, one := range all {
		out[i] = string(one)
	}
	return out
}
