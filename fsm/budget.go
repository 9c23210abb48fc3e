package fsm

// Amount is a number of instances or a percentage of the group's count.
type Amount struct {
	N       int  `cbor:"1,keyasint"`
	Percent bool `cbor:"2,keyasint,omitempty"`
}

// BudgetSpec is what a set of instances can lose at once and per window. At most one of MinReady and MaxDown is given. With neither, a group has
// its class's default, and a shared budget limits only the rate.
type BudgetSpec struct {
	MinReady *Amount   `json:"min_ready,omitempty" cbor:"1,keyasint,omitempty"` // a percentage is rounded up
	MaxDown  *Amount   `json:"max_down,omitempty" cbor:"2,keyasint,omitempty"`  // a percentage is rounded down
	Rate     *RateSpec `json:"rate,omitempty" cbor:"3,keyasint,omitempty"`
	Blocking bool      `json:"blocking,omitempty" cbor:"4,keyasint,omitempty"` // accepts that the budget may allow nothing
}

// RateSpec allows Max voluntary stops to begin within any Window.
type RateSpec struct {
	Max    int      `json:"max" cbor:"1,keyasint"`
	Window Duration `json:"window" cbor:"2,keyasint"`
}

// Budget is a BudgetSpec resolved to numbers for the present count. It is resolved anew in each entry that changes the count.
type Budget struct {
	MinReady int      `cbor:"1,keyasint"`           // never above the count
	MaxDown  int      `cbor:"2,keyasint"`           // count - MinReady
	RateMax  int      `cbor:"3,keyasint,omitempty"` // 0 = no rate
	Window   Duration `cbor:"4,keyasint,omitempty"`
}

// SharedBudget is a budget with a name that groups share: what it counts is the sum over all of them (R21). What is ready and wanted is
// read from the groups' rows; only the stops of the rate's window are kept here.
type SharedBudget struct {
	Name     BudgetName `cbor:"1,keyasint"`
	Spec     BudgetSpec `cbor:"2,keyasint"`
	Resolved Budget     `cbor:"3,keyasint"`           // for the sum of the groups' counts
	Stops    []Time     `cbor:"4,keyasint,omitempty"` // voluntary stops begun within the rate's window
	Groups   []GroupID  `cbor:"5,keyasint,omitempty"` // that name it, in order
	Index    uint64     `cbor:"6,keyasint"`           // of the last change of its spec
}

// BudgetSet makes Spec the whole of a shared budget; a new name makes a new one. It is in force for every stop that begins afterwards.
// Code: invalid.
type BudgetSet struct {
	Name BudgetName `cbor:"1,keyasint"`
	Spec BudgetSpec `cbor:"2,keyasint"`
}

// BudgetRemove removes a shared budget. Codes: not_found, in_use while a group names it.
type BudgetRemove struct {
	Name BudgetName `cbor:"1,keyasint"`
}
