// Package rules checks this tree's own rules by tests. They say which package may import which, what model, fsm and
// reconcile must not use to stay deterministic, and how large packages, files and types may grow. Packages keep no
// state in variables, and the command line calls the API through its client.
//
// No general linter has these rules. Each rule is a function from source to findings. It must find nothing in the tree,
// and the one mistake in each of a few examples. If a rule prevents better code, change it here, and docs/adr or
// CONTRIBUTING.md in the same commit.
package rules

//go:generate go test -count=1 -run TestRequirements . -rewrite
