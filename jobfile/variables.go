package jobfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/outspan/outspan/internal/hclfile"
)

// agentVariables returns the variables that expressions in a group may use, and reports expressions that name a port
// that the group lacks. The value of each variable is its own template, such as "${port.http}", because only the agent
// knows the real value. The agent replaces the template before it runs the program.
func agentVariables(d *hclfile.Decoder, body hcl.Body) *hcl.EvalContext {
	ports := map[string]cty.Value{}
	if syntax, ok := body.(*hclsyntax.Body); ok {
		for _, b := range syntax.Blocks {
			if b.Type == "port" && len(b.Labels) == 1 {
				ports[b.Labels[0]] = cty.StringVal("${port." + b.Labels[0] + "}")
			}
		}
		wantPorts(d, syntax, ports)
	}
	return &hcl.EvalContext{Variables: map[string]cty.Value{
		"port": cty.ObjectVal(ports),
		"slot": cty.StringVal("${slot}"),
		"node": cty.ObjectVal(map[string]cty.Value{"id": cty.StringVal("${node.id}"), "name": cty.StringVal("${node.name}")}),
	}}
}

// wantPorts reports expressions that name a port that the group lacks. It also adds the missing port to ports, so that
// evaluating the expression does not report the same mistake again.
func wantPorts(d *hclfile.Decoder, body *hclsyntax.Body, ports map[string]cty.Value) {
	known := slices.Sorted(maps.Keys(ports))
	_ = hclsyntax.VisitAll(body, func(node hclsyntax.Node) hcl.Diagnostics {
		e, ok := node.(*hclsyntax.ScopeTraversalExpr)
		if !ok || len(e.Traversal) < 2 || e.Traversal.RootName() != "port" {
			return nil
		}
		attr, ok := e.Traversal[1].(hcl.TraverseAttr)
		if !ok || slices.Contains(known, attr.Name) {
			return nil
		}
		hint := fmt.Sprintf("write: port %q {}", attr.Name)
		if len(known) > 0 {
			hint = "its ports are: " + hclfile.Listed(known)
		}
		d.Fail(attr.SrcRange, "Unknown port", fmt.Sprintf("The group has no port %q; %s.", attr.Name, hint))
		ports[attr.Name] = cty.StringVal("")
		return nil
	})
}

// filledIn reports whether agentVariables has a variable with this name. Print leaves "${name}" unescaped for such a
// name.
func filledIn(name string) bool {
	return strings.HasPrefix(name, "port.") || name == "slot" || name == "node.id" || name == "node.name"
}
