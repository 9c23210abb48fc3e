package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// RunApp is the program that instances of the demo and of tests run. It is a small web service that has /healthz and
// stops gracefully. By default it listens on the address that the agent puts into the instance's environment.
func RunApp(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo-app", flag.ContinueOnError)
	listen := flags.String("listen", net.JoinHostPort(os.Getenv("OUTSPAN_IP"), os.Getenv("OUTSPAN_PORT_HTTP")),
		"address to listen on")
	boot := flags.Duration("boot", 0, "how long it takes to become ready")
	ignoreTerm := flags.Bool("ignore-term", false, "ignore SIGTERM, so that only SIGKILL ends it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if *ignoreTerm {
		signal.Ignore(syscall.SIGTERM)
		signals = signals[:1]
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	defer stop()

	healthyFrom := time.Now().Add(*boot)
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if time.Now().Before(healthyFrom) {
			http.Error(w, "booting", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "instance %s, slot %s, node %s\n", os.Getenv("OUTSPAN_INSTANCE_ID"), os.Getenv("OUTSPAN_SLOT"),
			os.Getenv("OUTSPAN_NODE"))
	})
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("demo-app can't listen: %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Fprintln(os.Stdout, "demo-app listens on", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	fmt.Fprintln(os.Stdout, "demo-app stops")
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
