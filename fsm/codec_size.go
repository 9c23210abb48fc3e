package fsm

import "github.com/outspan/outspan/model"

// MaxGroupBytes is the most bytes that one group of commands may add to an entry. It leaves 4 KiB for the other fields
// of the entry.
const MaxGroupBytes = MaxEntryBytes - 4<<10

// Upper bounds of the bytes around a command and around a group in an encoded entry.
const (
	commandHead = 1 + 3 + 3 // the array, the kind, the format
	groupHead   = 5
)

// GroupSize returns an upper bound, too high by a few bytes at most, of how much a group of commands adds to an encoded
// entry. Codes: invalid (the group can't be encoded), too_large (the group has more than MaxGroupBytes).
func GroupSize(group []Command) (int, *model.Error) {
	size := groupHead
	for _, c := range group {
		w, err := encodeCommand(model.CurrentFormat, c)
		if err != nil {
			return 0, asRefusal(err)
		}
		size += commandHead + len(w.Body)
	}
	if size > MaxGroupBytes {
		return size,
			model.Refuse(model.CodeTooLarge, "one step needs an entry of %d bytes, at most %d are allowed", size, MaxGroupBytes).
				WithHint("make the group of instances smaller, or split it into several groups")
	}
	return size, nil
}
