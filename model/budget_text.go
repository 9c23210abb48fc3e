package model

// BudgetLine is what a budget comes to for the present count, for people who declared a percentage or a default.
type BudgetLine struct {
	Name     string `json:"name" cbor:"1,keyasint"`  // of the group, or of the shared budget
	Scope    string `json:"scope" cbor:"2,keyasint"` // group or shared
	Want     int    `json:"want" cbor:"3,keyasint"`
	MinReady int    `json:"min_ready" cbor:"4,keyasint"`
	MaxDown  int    `json:"max_down" cbor:"5,keyasint"`
	Text     string `json:"text" cbor:"6,keyasint"` // how the numbers came about
}

// The scopes of budgets.
const (
	ScopeGroup  = "group"
	ScopeShared = "shared"
)
