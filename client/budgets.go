package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Budgets are the operations on budgets. A budget limits how many instances of one or several groups may be down at
// once. List and All also return the limits on how many instances each kind of actor may stop.
type Budgets struct{ calls }

// List returns the budgets. It reads all pages.
func (b Budgets) List(ctx context.Context, o ListOptions) (List[api.Budget], error) {
	return list[api.Budget](ctx, b.calls, route("budgets"), o.query())
}

// All yields the budgets and reads each page when it is needed. If a read fails, All yields the error and stops.
func (b Budgets) All(ctx context.Context, o ListOptions) iter.Seq2[api.Budget, error] {
	return each[api.Budget](ctx, b.calls, route("budgets"), o.query())
}

// Get returns a shared budget. Code: not_found.
func (b Budgets) Get(ctx context.Context, name string, o ReadOptions) (Response[api.Budget], error) {
	return read[api.Budget](ctx, b.calls, route("budgets", name), o.query())
}

// OfGroup returns the budget of a group. Code: not_found.
func (b Budgets) OfGroup(ctx context.Context, job, group string, o ReadOptions) (Response[api.Budget], error) {
	return read[api.Budget](ctx, b.calls, route("budgets", job, group), o.query())
}

// Set creates a shared budget, or replaces it as a whole.
func (b Budgets) Set(
	ctx context.Context, name string, body model.BudgetSpec, o WriteOptions,
) (Response[api.BudgetReply], error) {
	return write[api.BudgetReply](ctx, b.calls, http.MethodPut, route("budgets", name), o.query(), body)
}

// Remove removes a shared budget that no group uses. Codes: not_found, in_use.
func (b Budgets) Remove(ctx context.Context, name string, o WriteOptions) (Response[api.BudgetReply], error) {
	return write[api.BudgetReply](ctx, b.calls, http.MethodDelete, route("budgets", name), o.query(), nil)
}

// Classes are the operations on priority classes.
type Classes struct{ calls }

// List returns the classes, the most important first. It reads all pages.
func (c Classes) List(ctx context.Context, o ListOptions) (List[api.ClassView], error) {
	return list[api.ClassView](ctx, c.calls, route("classes"), o.query())
}

// All yields the classes, the most important first, and reads each page when it is needed. If a read fails, All yields
// the error and stops.
func (c Classes) All(ctx context.Context, o ListOptions) iter.Seq2[api.ClassView, error] {
	return each[api.ClassView](ctx, c.calls, route("classes"), o.query())
}

// Get returns one class. Code: not_found.
func (c Classes) Get(ctx context.Context, name string, o ReadOptions) (Response[api.ClassView], error) {
	return read[api.ClassView](ctx, c.calls, route("classes", name), o.query())
}

// Set creates a class, or changes the properties of an existing class that are set in body.
func (c Classes) Set(
	ctx context.Context, name string, body api.ClassBody, o WriteOptions,
) (Response[api.ClassReply], error) {
	return write[api.ClassReply](ctx, c.calls, http.MethodPut, route("classes", name), o.query(), body)
}

// Remove removes a class that no job uses. The class production can't be removed. Codes: not_found, in_use, invalid.
func (c Classes) Remove(ctx context.Context, name string, o WriteOptions) (Response[api.ClassReply], error) {
	return write[api.ClassReply](ctx, c.calls, http.MethodDelete, route("classes", name), o.query(), nil)
}
