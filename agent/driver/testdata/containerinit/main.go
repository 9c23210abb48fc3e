// Command containerinit is a static binary that tests bind into containers. The product uses its own binary.
package main

import (
	"os"

	"github.com/outspan/outspan/agent/driver/inside"
)

func main() { os.Exit(inside.Main()) }
