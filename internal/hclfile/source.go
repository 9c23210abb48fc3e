package hclfile

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/outspan/outspan/model"
)

// Limits of one file. The HCL parser is recursive, and a program can't recover from a stack overflow. So checkNesting
// checks the nesting in the tokens of a file before the file is parsed.
const (
	maxFileBytes = 256 << 10
	maxNesting   = 64
	maxNumber    = 20 // bytes of a number
	maxMistakes  = 50 // that one error names
	maxNames     = 20 // that a hint names
)

// parse parses one file. It refuses a file that exceeds a limit.
func parse(name string, src []byte) (hcl.Body, hcl.Diagnostics) {
	if len(src) > maxFileBytes {
		return nil,
			problem(hcl.Range{Filename: name}, "File too large",
				fmt.Sprintf("It has %d bytes; at most %d are read.", len(src), maxFileBytes))
	}
	if diags := checkNesting(name, src); diags.HasErrors() {
		return nil, diags
	}
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diags
	}
	return file.Body, nil
}

// checkNesting refuses what would cost the parser, or whoever computes a value, far more than the file has bytes:
// brackets that are nested too deeply, too many operators in one expression, loops, and numbers with an exponent. The
// limits are far above what a real file needs.
func checkNesting(name string, src []byte) hcl.Diagnostics {
	tokens, diags := hclsyntax.LexConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return diags
	}
	var open []hclsyntax.TokenType // the brackets around a token
	run := 0                       // operators since the expression began
	before := hclsyntax.TokenNewline
	for _, t := range tokens {
		switch {
		case opens(t.Type):
			open = append(open, t.Type)
		case closes(t.Type) && len(open) > 0:
			open = open[:len(open)-1]
		case isOperator(t.Type):
			run++
		case t.Type == hclsyntax.TokenNewline || t.Type == hclsyntax.TokenComment:
			// Within ( [ and "${", an expression goes on after the end of a line.
			if len(open) == 0 || open[len(open)-1] == hclsyntax.TokenOBrace {
				run = 0
			}
			continue
		case t.Type == hclsyntax.TokenIdent && string(t.Bytes) == "for" && opens(before),
			t.Type == hclsyntax.TokenTemplateControl:
			return problem(t.Range, "No loops", "Write the values out.")
		case t.Type == hclsyntax.TokenNumberLit && len(t.Bytes) > maxNumber, hasExponent(t):
			return problem(t.Range, "Number too long", "Write it with digits alone, at most 20.")
		}
		before = t.Type
		if len(open) > maxNesting || run > maxNesting {
			return problem(t.Range, "Nested too deeply", fmt.Sprintf("At most %d levels are read.", maxNesting))
		}
	}
	return nil
}

func opens(t hclsyntax.TokenType) bool {
	return t == hclsyntax.TokenOBrace || t == hclsyntax.TokenOBrack || t == hclsyntax.TokenOParen ||
		t == hclsyntax.TokenTemplateInterp
}

func closes(t hclsyntax.TokenType) bool {
	return t == hclsyntax.TokenCBrace || t == hclsyntax.TokenCBrack || t == hclsyntax.TokenCParen ||
		t == hclsyntax.TokenTemplateSeqEnd
}

func isOperator(t hclsyntax.TokenType) bool {
	switch t {
	case hclsyntax.TokenBang, hclsyntax.TokenMinus, hclsyntax.TokenPlus, hclsyntax.TokenStar, hclsyntax.TokenSlash,
		hclsyntax.TokenPercent, hclsyntax.TokenAnd, hclsyntax.TokenOr, hclsyntax.TokenQuestion, hclsyntax.TokenColon,
		hclsyntax.TokenDot, hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan,
		hclsyntax.TokenLessThanEq, hclsyntax.TokenGreaterThan, hclsyntax.TokenGreaterThanEq:
		return true
	}
	return false
}

func hasExponent(t hclsyntax.Token) bool {
	return t.Type == hclsyntax.TokenNumberLit && strings.ContainsAny(string(t.Bytes), "eE")
}

// Listed joins names for a hint, but not more than 20.
func Listed(names []string) string {
	if len(names) > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}

func problem(at hcl.Range, summary, detail string) hcl.Diagnostics {
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &at}}
}

// asError joins all diagnostics into one error with a line for each, such as "web.hcl:3,5: Unsupported argument: ...".
// It returns nil if no diagnostic is an error. Code: invalid.
func asError(diags hcl.Diagnostics) error {
	if !diags.HasErrors() {
		return nil
	}
	var lines []string
	for i, d := range diags {
		if i > 0 && d.Summary == diags[i-1].Summary && d.Detail == diags[i-1].Detail && !isUnknown(d) {
			continue // the parser reports a missing quote again for each following line
		}
		where := ""
		if d.Subject != nil {
			where = d.Subject.Filename
			if d.Subject.Start.Line > 0 {
				where = fmt.Sprintf("%s:%d,%d", where, d.Subject.Start.Line, d.Subject.Start.Column)
			}
			where += ": "
		}
		line := where + d.Summary
		switch plain := plainly(d); {
		case plain != "":
			line = where + plain
		case d.Detail != "":
			line += ": " + strings.ReplaceAll(d.Detail, "\n", " ")
		}
		if lines = append(lines, line); len(lines) == maxMistakes {
			lines = append(lines, "there may be more mistakes")
			break
		}
	}
	return &model.Error{Code: model.CodeInvalid, Message: strings.Join(lines, "\n")}
}

// Format returns HCL in canonical form. It returns an error if src exceeds a limit or can't be parsed. Code: invalid.
func Format(name string, src []byte) ([]byte, error) {
	if _, diags := parse(name, src); diags.HasErrors() {
		return nil, asError(diags)
	}
	return hclwrite.Format(src), nil
}
