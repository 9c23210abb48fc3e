package rights_test

import (
	"flag"
	"os"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares a text with a file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has other content now; look at the difference, then go test ./rights -rewrite:\n%s", path, got)
	}
}
