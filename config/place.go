package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/outspan/outspan/model"
)

// places are where keys and blocks stand, by their path from the top: "log/level",
// "job/web/group/http/check/alive/path". Mistakes that only the whole shows are told with their line by them. Of
// several files the last one counts.
type places map[string]hcl.Range

func (p places) note(at hcl.Range, path ...string) {
	if p != nil {
		p[strings.Join(path, "/")] = at
	}
}

// of is the place of a key as "FILE:LINE,COLUMN", or that of the closest block around it, or otherwise.
func (p places) of(key, otherwise string) string {
	for key != "" {
		if at, ok := p[key]; ok {
			return fmt.Sprintf("%s:%d,%d", at.Filename, at.Start.Line, at.Start.Column)
		}
		key = key[:max(strings.LastIndexByte(key, '/'), 0)]
	}
	return otherwise
}

// nameKeys adds to an unknown key that resembles none what may stand in its place.
func nameKeys(diags hcl.Diagnostics, fields []field) hcl.Diagnostics {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, d := range diags {
		unknown := d.Summary == "Unsupported argument" || d.Summary == "Unsupported block type"
		if unknown && !strings.Contains(d.Detail, "Did you mean") {
			d.Detail += " What may stand here: " + strings.Join(names, ", ") + "."
		}
	}
	return diags
}

// plainly says in our words what the parser of HCL says in its own; "" if its words will do.
func plainly(d *hcl.Diagnostic) string {
	switch {
	case d.Summary == "Variables not allowed" || isBareWord(d):
		return "Bare word: write text in quotes, a switch as true or false."
	case d.Summary == "Invalid multi-line string":
		return "No closing quote: write the closing quote on the same line."
	case d.Summary == "Invalid single-argument block definition":
		return "Not closed on its line: a block on one line has one key and its closing brace; write one key a line."
	case d.Summary == "Invalid character" && strings.HasPrefix(d.Detail, "This character is not used"):
		return `Not in quotes: write "${...}" in quotes.`
	}
	return ""
}

// isBareWord reports whether the parser took a word without quotes for a variable.
func isBareWord(d *hcl.Diagnostic) bool {
	word, ok := d.Expression.(*hclsyntax.ScopeTraversalExpr)
	return d.Summary == "Unknown variable" && ok && len(word.Traversal) == 1
}

// has reports whether a body has a block or a key of a name.
func has(body hcl.Body, names ...string) bool {
	b, ok := body.(*hclsyntax.Body)
	return ok && slices.ContainsFunc(names, func(name string) bool {
		_, isKey := b.Attributes[name]
		return isKey || slices.ContainsFunc(b.Blocks, func(b *hclsyntax.Block) bool { return b.Type == name })
	})
}

// noJobFile is what to do about a file that is not a job file; "" if it looks like one. The body is nil if it could not
// be parsed.
func noJobFile(name string, body hcl.Body, diags hcl.Diagnostics) string {
	const example = "a job file is HCL; for an example: outspan job init"
	switch {
	case has(body, "server", "agent", "data_dir"):
		return "this is a file of a server or an agent; check it with: outspan config validate " + name
	case has(body, "job"):
		return ""
	case has(body, "group"):
		return "put it into: job \"NAME\" { ... }"
	case body != nil || diags[0].Summary == "Argument or block definition required":
		return example
	}
	return ""
}

// hinted is the refusal with its next step; without one it stays as it is.
func hinted(err error, hint string) error {
	var refusal *model.Error
	if hint != "" && errors.As(err, &refusal) {
		return refusal.WithHint("%s", hint)
	}
	return err
}
