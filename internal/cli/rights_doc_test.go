package cli

import (
	"os"
	"strings"
	"testing"
)

// The script about continuous integration runs the role and the commands that docs/rights.md recommends.
func TestRecipeForCIIsRun(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	script := read("testdata/rights-ci.txt")
	_, recipe, _ := strings.Cut(read("../../docs/rights.md"), "5. **Continuous integration.**")
	_, role, _ := strings.Cut(recipe, "```hcl\n")
	role, rest, _ := strings.Cut(role, "```")
	_, commands, _ := strings.Cut(rest, "```sh\n")
	commands, _, _ = strings.Cut(commands, "```")
	if role == "" || !strings.Contains(script, "-- ci.hcl --\n"+role+"-- ") {
		t.Errorf("the script has another role:\n%s", role)
	}
	if strings.Count(commands, "\n") < 3 {
		t.Errorf("the recipe has the commands %q", commands)
	}
	for line := range strings.Lines(commands) {
		if !strings.Contains(script, "\n"+line) {
			t.Errorf("the script does not run: %s", line)
		}
	}
}
