// Package axe lets axe-core look at a page in a browser: it finds what keeps people out, such as a button without a
// name or a text with too little contrast. The library stands in this folder as its makers publish it, under the
// Mozilla Public License; only tests use it.
package axe

import (
	"context"
	_ "embed" // for axe.min.js
	"fmt"
	"strings"

	"github.com/outspan/outspan/internal/testbed/chrome"
)

//go:embed axe.min.js
var source string

// Look returns what axe-core finds in the page as it is shown, a line each: the rule, what it says, and where. The
// script comes through the browser, not through the page, so that the page's policy stays as it is. It reports no more
// than 30 places.
func Look(ctx context.Context, p *chrome.Page) ([]string, error) {
	if err := p.Eval(ctx, "window.axe ? undefined : (() => { "+source+"; return undefined })()", nil); err != nil {
		return nil, fmt.Errorf("load axe-core: %w", err)
	}
	var got struct {
		Passes     int
		Violations []struct {
			ID, Help string
			Nodes    []struct {
				HTML           string
				FailureSummary string `json:"failureSummary"`
			}
		}
	}
	const run = `axe.run(document, { iframes: false, resultTypes: ['violations'] })
		.then(r => ({ passes: r.passes.length, violations: r.violations }))`
	if err := p.Eval(ctx, run, &got); err != nil {
		return nil, fmt.Errorf("run axe-core: %w", err)
	}
	if got.Passes == 0 {
		return nil, fmt.Errorf("axe-core looked at nothing")
	}
	var found []string
	for _, v := range got.Violations {
		for _, n := range v.Nodes {
			if len(found) < 30 {
				found = append(found, fmt.Sprintf("%s: %s: %s (%s)", v.ID, v.Help, n.HTML,
					strings.Join(strings.Fields(n.FailureSummary), " ")))
			}
		}
	}
	return found, nil
}
