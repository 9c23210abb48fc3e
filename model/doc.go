// Package model has the types that every part of outspan uses: ids and time, codes and errors, job specs with their
// checks and expansion, roles, gates, budgets, and what an agent reports.
//
// Of outspan's own packages it imports only internal/canon and internal/plant. Servers call it while they apply the
// log, so the determinism rules of fsm apply here too: no clock, no randomness, no map order. A change to Expand or to
// the role presets changes what a log entry means, so it needs a new format.
package model
