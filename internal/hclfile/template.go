package hclfile

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// explainTemplates rewrites the messages about variables that "${...}" in an attribute names and that do not exist. The
// new text says what is filled in there, and how to leave the text to a shell.
func explainTemplates(diags hcl.Diagnostics, attr *hcl.Attribute, known *hcl.EvalContext) {
	inside := inTemplates(attr.Expr)
	for _, d := range diags {
		e, ok := d.Expression.(*hclsyntax.ScopeTraversalExpr)
		if !ok || !slices.Contains(inside, e) {
			continue
		}
		name := dotted(e.Traversal)
		only := "nothing is"
		if names := filledNames(known); len(names) > 0 {
			only = "only " + Listed(names)
		}
		d.Summary = `Unknown variable in "${...}"`
		d.Detail = fmt.Sprintf("%s is not filled in here, %s.", name, only)
		if len(e.Traversal) == 1 {
			d.Detail += fmt.Sprintf(" To leave it to a shell, write $%s or $${%[1]s}.", name)
		}
	}
}

// inTemplates returns the variables in an expression that stand in "${...}".
func inTemplates(expr hcl.Expression) []*hclsyntax.ScopeTraversalExpr {
	var found []*hclsyntax.ScopeTraversalExpr
	collect := func(node hclsyntax.Node) hcl.Diagnostics {
		if e, ok := node.(*hclsyntax.ScopeTraversalExpr); ok {
			found = append(found, e)
		}
		return nil
	}
	if root, ok := expr.(hclsyntax.Node); ok {
		_ = hclsyntax.VisitAll(root, func(node hclsyntax.Node) hcl.Diagnostics {
			switch node.(type) {
			case *hclsyntax.TemplateExpr, *hclsyntax.TemplateWrapExpr:
				return hclsyntax.VisitAll(node, collect)
			}
			return nil
		})
	}
	return found
}

// dotted returns the name of a variable as a file writes it, such as "port.http".
func dotted(t hcl.Traversal) string {
	name := t.RootName()
	for _, step := range t[1:] {
		if attr, ok := step.(hcl.TraverseAttr); ok {
			name += "." + attr.Name
		}
	}
	return name
}

// filledNames returns the names of all variables, in order.
func filledNames(known *hcl.EvalContext) []string {
	var names []string
	if known == nil {
		return nil
	}
	for name, v := range known.Variables {
		if !v.Type().IsObjectType() {
			names = append(names, name)
			continue
		}
		for attr := range v.Type().AttributeTypes() {
			names = append(names, name+"."+attr)
		}
	}
	slices.Sort(names)
	return names
}
