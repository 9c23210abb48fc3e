// Package model holds the types that every part of outspan speaks: ids and time, codes and errors, job specs with their
// checks and expansion, roles, gates, budgets, and what an agent reports.
//
// It imports nothing of ours. Servers call it while they apply the log, so the determinism rules of fsm hold here too:
// no clock, no randomness, no order of a map. A change to Expand or to the role presets changes what an entry means, so
// it is a change of format.
package model
