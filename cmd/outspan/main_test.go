package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary the program as well: scripts run it as outspan, and agents start it again as a shim.
func TestMain(m *testing.M) {
	if code, ok := reexec(os.Args[1:]); ok {
		os.Exit(code)
	}
	testscript.Main(m, map[string]func(){"outspan": main})
}
