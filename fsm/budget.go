package fsm

// Amount is a number of instances or a percentage of the group's count.
type Amount struct {
	N       int  `cbor:"1,keyasint"`
	Percent bool `cbor:"2,keyasint,omitempty"`
}

// BudgetSpec is what a group can lose at once and per window. At most one of MinReady and MaxDown is given; with neither the class's default holds.
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

// Budget is a BudgetSpec resolved to numbers for the group's present count. It is resolved anew in each entry that changes the count.
type Budget struct {
	MinReady int      `cbor:"1,keyasint"`           // never above the count
	MaxDown  int      `cbor:"2,keyasint"`           // count - MinReady
	RateMax  int      `cbor:"3,keyasint,omitempty"` // 0 = no rate
	Window   Duration `cbor:"4,keyasint,omitempty"`
}
