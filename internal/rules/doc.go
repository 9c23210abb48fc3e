// Package rules holds this tree's own rules as tests: which room may import which, what keeps model, fsm and reconcile
// deterministic, that packages keep no state in variables, that the command line calls the API through its client, and
// how large things may grow.
//
// They are what no general linter knows. Each rule is a function from source to findings; it is run over the tree,
// where it must find nothing, and over a few lines that break it, where it must find just that. When a rule is in the
// way of better code, change the rule here and docs/adr or CONTRIBUTING.md with it, in the same commit.
package rules

//go:generate go test -count=1 -run TestRequirements . -rewrite
