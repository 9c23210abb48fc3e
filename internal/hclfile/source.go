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

// checkNesting refuses brackets that are nested too deeply, and too many operators on one line. The limit is far above
// what a real file needs.
func checkNesting(name string, src []byte) hcl.Diagnostics {
	tokens, diags := hclsyntax.LexConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return diags
	}
	depth, run := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp,
			hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			depth--
		}
		switch t.Type {
		case hclsyntax.TokenBang, hclsyntax.TokenMinus, hclsyntax.TokenPlus, hclsyntax.TokenStar,
			hclsyntax.TokenSlash, hclsyntax.TokenPercent,
			hclsyntax.TokenAnd, hclsyntax.TokenOr, hclsyntax.TokenQuestion, hclsyntax.TokenColon, hclsyntax.TokenDot,
			hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual:
			run++
		case hclsyntax.TokenNewline:
			run = 0
		}
		if depth > maxNesting || run > maxNesting {
			return problem(t.Range, "Nested too deeply", fmt.Sprintf("At most %d levels are read.", maxNesting))
		}
	}
	return nil
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
		if i > 0 && d.Summary == diags[i-1].Summary && d.Detail == diags[i-1].Detail {
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
		lines = append(lines, line)
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
