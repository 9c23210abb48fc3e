package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// Budget says how many instances of a set may be down at once, how many stops may begin per window, and how much of
// that is used.
type Budget struct {
	Name     string           `json:"name" doc:"of the group, JOB/GROUP; of the shared budget; or of the actor"`
	Scope    string           `json:"scope" enum:"group,shared,actor" doc:"shared: its groups are counted together; actor: how many stops one part of the system may begin, from the setting rate_NAME"`
	Want     int              `json:"want" doc:"instances that there should be"`
	MinReady int              `json:"min_ready"`
	MaxDown  int              `json:"max_down"`
	Ready    int              `json:"ready"`
	Held     int              `json:"held" doc:"ready ones whose stop is being prepared"`
	Unheard  int              `json:"unheard" doc:"ready ones by the word of a restored state only: no agent has told since that they run, so none of them allows a stop"`
	Down     BudgetDown       `json:"down"`
	Allowed  int              `json:"allowed" doc:"stops that may begin now"`
	Rate     *BudgetRate      `json:"rate" doc:"null: no rate"`
	Blocking bool             `json:"blocking" doc:"it was said that the budget may allow nothing"`
	Groups   []model.GroupID  `json:"groups" doc:"that it is for"`
	Shared   []string         `json:"shared" doc:"budgets that the group shares with others, which must allow a stop too"`
	Spec     model.BudgetSpec `json:"spec" doc:"as it was declared; empty: the default of the class"`
	Text     string           `json:"text" doc:"how the numbers came about"`
}

// BudgetDown is how many instances of a budget are down, by cause.
type BudgetDown struct {
	Voluntary   int                 `json:"voluntary" doc:"stopped by an operator, a drain or a rollout, and not yet replaced"`
	Involuntary int                 `json:"involuntary" doc:"failed, lost or unready"`
	ByCause     map[model.Cause]int `json:"by_cause"`
}

// BudgetRate limits how many stops may begin in a window.
type BudgetRate struct {
	Max         int            `json:"max"`
	Window      model.Duration `json:"window"`
	Used        int            `json:"used"`
	NextAllowed *time.Time     `json:"next_allowed" doc:"null: now"`
}

// BudgetReply is the answer to a change of a shared budget.
type BudgetReply struct {
	Written
	Budget *Budget `json:"budget,omitempty"`
}
