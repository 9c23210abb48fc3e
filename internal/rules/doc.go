// Package rules tests this repository's own rules, which no general linter has. They say which package may import
// which, what model, fsm and reconcile must not use to stay deterministic, and how large packages, files and types may
// grow. They also forbid state in package variables, and make the command line call the API only through its client.
//
// Each rule is a function from source to findings. It must find nothing in the repository, and exactly one mistake in
// each of a few examples. If a rule prevents better code, change it here, and docs/adr or CONTRIBUTING.md in the same
// commit.
package rules

//go:generate go test -count=1 -run TestRequirements . -rewrite
