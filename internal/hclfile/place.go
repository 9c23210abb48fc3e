package hclfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/outspan/outspan/model"
)

// places maps the paths of keys and blocks to their ranges in their files. A path begins at the top of the file, such
// as "log/level" or "job/web/group/http/check/alive/path". Checks that need the whole file use places to report where a
// mistake is. If several files have a key, the range is that in the last file.
type places map[string]hcl.Range

func (d *Decoder) note(at hcl.Range, path ...string) {
	if d.places == nil {
		d.places = places{}
	}
	d.places[strings.Join(path, "/")] = at
}

// PlaceOf returns the place of a key, such as "log/level", as "FILE:LINE,COLUMN". If the key is missing, PlaceOf
// returns the place of the closest block around it. If there is no such block either, PlaceOf returns the default in
// the parameter otherwise.
func (d *Decoder) PlaceOf(key, otherwise string) string {
	for key != "" {
		if at, ok := d.places[key]; ok {
			return fmt.Sprintf("%s:%d,%d", at.Filename, at.Start.Line, at.Start.Column)
		}
		key = key[:max(strings.LastIndexByte(key, '/'), 0)]
	}
	return otherwise
}

// nameKeys adds to a message about an unknown key the hint for it, if there is one. Otherwise it adds the list of
// possible keys, unless the message already suggests one.
func nameKeys(diags hcl.Diagnostics, fields []Field, hints map[string]string) hcl.Diagnostics {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, d := range diags {
		unknown := isUnknown(d)
		if hint := hints[unknownWord(d)]; unknown && hint != "" {
			d.Detail, _, _ = strings.Cut(d.Detail, " Did you mean")
			d.Detail += " " + hint
			continue
		}
		if unknown && !strings.Contains(d.Detail, "Did you mean") {
			d.Detail += " What may stand here: " + strings.Join(names, ", ") + "."
		}
	}
	return diags
}

// isUnknown reports whether a message is about an unknown key.
func isUnknown(d *hcl.Diagnostic) bool {
	return d.Summary == "Unsupported argument" || d.Summary == "Unsupported block type"
}

// unknownWord returns the word of a message about an unknown key, which is the first that it quotes.
func unknownWord(d *hcl.Diagnostic) string {
	_, rest, _ := strings.Cut(d.Detail, `"`)
	word, _, _ := strings.Cut(rest, `"`)
	return word
}

// plainly returns a clearer text for a message of the HCL parser, or "" if the message is clear enough.
func plainly(d *hcl.Diagnostic) string {
	block, missesName := strings.CutPrefix(d.Summary, "Missing name for ")
	switch {
	case d.Summary == "Variables not allowed" || isBareWord(d):
		return "Bare word: write text in quotes, a switch as true or false."
	case d.Summary == "Invalid multi-line string":
		return "No closing quote: write the closing quote on the same line."
	case d.Summary == "Invalid single-argument block definition":
		return "Not closed on its line: a block on one line has one key and its closing brace; write one key a line."
	case missesName:
		return fmt.Sprintf("Missing name: write %s \"NAME\" { ... }.", block)
	case d.Summary == "Invalid character" && strings.HasPrefix(d.Detail, "This character is not used"):
		return `Not in quotes: write "${...}" in quotes.`
	}
	return ""
}

// isBareWord reports whether the message is about a word without quotes, which the parser mistook for a variable.
func isBareWord(d *hcl.Diagnostic) bool {
	word, ok := d.Expression.(*hclsyntax.ScopeTraversalExpr)
	return d.Summary == "Unknown variable" && ok && len(word.Traversal) == 1
}

// Has reports whether a body has a block or a key with one of these names.
func Has(body hcl.Body, names ...string) bool {
	b, ok := body.(*hclsyntax.Body)
	return ok && slices.ContainsFunc(names, func(name string) bool {
		_, isKey := b.Attributes[name]
		return isKey || slices.ContainsFunc(b.Blocks, func(b *hclsyntax.Block) bool { return b.Type == name })
	})
}

// Hinted adds hint to err if err is a *model.Error and hint is not empty. Otherwise it returns err unchanged.
func Hinted(err error, hint string) error {
	var refusal *model.Error
	if hint != "" && errors.As(err, &refusal) {
		return refusal.WithHint("%s", hint)
	}
	return err
}

// NoHCL reports whether the first mistake is that the file contains something other than attributes and blocks. Then
// the file may not be HCL at all.
func (d *Decoder) NoHCL() bool {
	return len(d.diags) > 0 && d.diags[0].Summary == "Argument or block definition required"
}
