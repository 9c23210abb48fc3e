package agent

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/agent/driver"
)

// TestMain runs the hidden subcommands, since the agent starts the test binary as its own binary. With `program`, the
// binary is the program of an instance.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(driver.ShimMain(os.Args[2:]))
		case "shim-enter":
			os.Exit(driver.EnterMain(os.Args[2:]))
		case "shim-init":
			os.Exit(driver.InitMain(os.Args[2:]))
		case "door":
			os.Exit(door.Main(os.Args[2:]))
		case "program":
			os.Exit(program(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

// program is what instances run. `program http ADDRESS NAME [HEALTH_FILE]` is an HTTP server that exits on SIGTERM. It
// answers / with NAME, and /facts with the content of HEALTH_FILE. It answers /health with status 503 if HEALTH_FILE is
// given but missing, and otherwise with 200. `program grow` allocates 4 GiB.
func program(args []string) int {
	switch args[0] {
	case "http":
		return serveProgram(args[1:])
	case "grow":
		var hold [][]byte
		for range 4096 {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			hold = append(hold, b)
		}
		fmt.Println("held", len(hold))
	}
	return 2
}

func serveProgram(args []string) int {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, args[1]) })
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if len(args) > 2 {
			if _, err := os.Stat(args[2]); err != nil {
				http.Error(w, "sick", http.StatusServiceUnavailable)
			}
		}
	})
	mux.HandleFunc("/facts", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, args[2]) })
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		fmt.Println("terminating")
		_ = srv.Close()
	}()
	_ = srv.Serve(l)
	return 0
}
