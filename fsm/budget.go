package fsm

import "github.com/outspan/outspan/model"

// SharedBudget is a named budget that limits the instances of several groups together (R21). The numbers of ready and
// wanted instances are read from the rows of the groups.
type SharedBudget struct {
	Name     model.BudgetName `cbor:"1,keyasint"`
	Spec     model.BudgetSpec `cbor:"2,keyasint"`
	Resolved model.Budget     `cbor:"3,keyasint"`           // the numbers of Spec for the sum of the groups' counts
	Stops    []model.Time     `cbor:"4,keyasint,omitempty"` // when voluntary stops began, within the rate's window
	Groups   []model.GroupID  `cbor:"5,keyasint,omitempty"` // the groups that name the budget, sorted
	Index    uint64           `cbor:"6,keyasint"`           // of the last change of Spec
}

// BudgetSet replaces the whole spec of a shared budget, or creates the budget. It changes nothing if the budget already
// has the same spec. Code: invalid.
type BudgetSet struct {
	Name model.BudgetName `cbor:"1,keyasint"`
	Spec model.BudgetSpec `cbor:"2,keyasint"`
}

// BudgetRemove removes a shared budget. Codes: not_found, in_use (a group names the budget).
type BudgetRemove struct {
	Name model.BudgetName `cbor:"1,keyasint"`
}
