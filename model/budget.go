package model

import (
	"fmt"
)

// Amount is a number of instances or a percentage of the group's count.
type Amount struct {
	N       int  `cbor:"1,keyasint"`
	Percent bool `cbor:"2,keyasint,omitempty"`
}

// BudgetSpec limits how many of a set of instances may be down at once, and how many of their stops may begin per
// window. At most one of MinReady and MaxDown is given. If neither is given, the budget of a group has the default of
// its job's class, and a shared budget limits only the rate.
type BudgetSpec struct {
	MinReady *Amount   `json:"min_ready,omitempty" cbor:"1,keyasint,omitempty"` // a percentage is rounded up
	MaxDown  *Amount   `json:"max_down,omitempty" cbor:"2,keyasint,omitempty"`  // a percentage is rounded down
	Rate     *RateSpec `json:"rate,omitempty" cbor:"3,keyasint,omitempty"`
	Blocking bool      `json:"blocking,omitempty" cbor:"4,keyasint,omitempty"` // true accepts a budget that allows no stop
}

// RateSpec allows Max voluntary stops to begin within any Window.
type RateSpec struct {
	Max    int      `json:"max" cbor:"1,keyasint"`
	Window Duration `json:"window" cbor:"2,keyasint"`
}

// Budget has the numbers of a BudgetSpec for the present count. Applying a log entry that changes the count also
// updates the Budget.
type Budget struct {
	MinReady int      `cbor:"1,keyasint"`           // never above the count
	MaxDown  int      `cbor:"2,keyasint"`           // count - MinReady
	RateMax  int      `cbor:"3,keyasint,omitempty"` // 0 means that there is no rate
	Window   Duration `cbor:"4,keyasint,omitempty"`
}

// maxRate is the highest number of stops that a rate may allow. The state stores the time of each stop in a window, so
// maxRate also bounds the size of a row.
const maxRate = 10_000

// Of converts the amount to a number of instances, for a given count. A percentage is rounded up if up is true,
// otherwise down. Callers round min_ready up and max_down down, so rounding never lets more instances be down.
func (a Amount) Of(count int, up bool) int {
	if !a.Percent {
		return a.N
	}
	n := count * a.N
	if up {
		n += 99
	}
	return n / 100
}

// String returns the amount as people write it: "2" or "25%".
func (a Amount) String() string {
	if a.Percent {
		return fmt.Sprintf("%d%%", a.N)
	}
	return fmt.Sprint(a.N)
}

// MarshalText implements encoding.TextMarshaler, for JSON.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, for JSON. It accepts only what String returns.
func (a *Amount) UnmarshalText(text []byte) error {
	var n int
	rest := ""
	if _, err := fmt.Sscanf(string(text), "%d%s", &n, &rest); err != nil && rest != "" ||
		n < 0 || rest != "" && rest != "%" {
		return fmt.Errorf("%q is neither a number of instances nor a percentage", text)
	}
	*a = Amount{N: n, Percent: rest == "%"}
	if a.String() != string(text) {
		return fmt.Errorf("%q is neither a number of instances nor a percentage", text)
	}
	return nil
}

// Valid reports whether the amount is in the range that budgets allow. A percentage is at most 100 %.
func (a Amount) Valid() bool {
	return a.N >= 0 && a.N <= maxCount*maxGroups && (!a.Percent || a.N <= 100)
}

// Check refuses a budget that is invalid whatever the count is. Code: invalid.
func (b *BudgetSpec) Check() *Error {
	switch {
	case b.MinReady != nil && b.MaxDown != nil:
		return Refuse(CodeInvalid, "budget has both min_ready and max_down; give one")
	case b.MinReady != nil && !b.MinReady.Valid() || b.MaxDown != nil && !b.MaxDown.Valid():
		return Refuse(CodeInvalid, "budget: an amount must be 0 or more, a percentage 0%% to 100%%")
	case b.Rate != nil && (b.Rate.Max < 1 || b.Rate.Max > maxRate || b.Rate.Window < Second):
		return Refuse(CodeInvalid, "budget.rate: max must be 1 to %d, window at least 1s", maxRate)
	}
	return nil
}

// ResolveBudget returns the numbers of a budget for a count. If spec is nil, or has neither min_ready nor max_down, the
// parameter def decides how many instances may be down.
func ResolveBudget(spec *BudgetSpec, def MaxDown, count int) Budget {
	down := def.Of(count)
	var b Budget
	if spec != nil {
		switch {
		case spec.MinReady != nil:
			down = count - min(spec.MinReady.Of(count, true), count)
		case spec.MaxDown != nil:
			down = min(spec.MaxDown.Of(count, false), count)
		}
		if spec.Rate != nil {
			b.RateMax, b.Window = spec.Rate.Max, spec.Rate.Window
		}
	}
	b.MaxDown = max(down, 0)
	b.MinReady = count - b.MaxDown
	return b
}

// BudgetLine is a budget in numbers, for people. It shows what a percentage or a default means for the present count.
type BudgetLine struct {
	Name     string `json:"name" cbor:"1,keyasint"`  // of the group, or of the shared budget
	Scope    string `json:"scope" cbor:"2,keyasint"` // ScopeGroup or ScopeShared
	Want     int    `json:"want" cbor:"3,keyasint"`
	MinReady int    `json:"min_ready" cbor:"4,keyasint"`
	MaxDown  int    `json:"max_down" cbor:"5,keyasint"`
	Text     string `json:"text" cbor:"6,keyasint"` // the numbers and why they apply, in words
}

// The scopes of budgets: the budget of one group, or a shared one.
const (
	ScopeGroup  = "group"
	ScopeShared = "shared"
)
