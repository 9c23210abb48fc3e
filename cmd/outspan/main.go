package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/outspan/outspan/internal/cli"
	"github.com/outspan/outspan/internal/daemon"
)

// version is the version of this build; the linker sets it.
var version = "dev"

func main() {
	args := os.Args[1:]
	if code, ok := daemon.Reexec(args); ok {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go func() { // a second Ctrl-C ends the process at once
		<-ctx.Done()
		stop()
	}()
	endProfile := startProfile()
	code := cli.Run(ctx, daemon.Program{Version: version, Exit: os.Exit}, args)
	endProfile()
	stop()
	os.Exit(code)
}
