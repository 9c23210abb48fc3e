// Package rules tests rules of this repository that no general linter has. The rules say which packages a package may
// import, what model, fsm and reconcile must not use to stay deterministic, and how large packages, files and types may
// grow. They also forbid state in package variables, and make the command line call the API only through package
// client.
//
// Each rule is a function from source to findings. It must find nothing in the repository, and exactly one mistake in
// each of a few examples. If a rule prevents better code, change the rule here, and docs/adr or CONTRIBUTING.md in the
// same commit.
package rules

//go:generate go test -count=1 -run TestRequirements . -rewrite
