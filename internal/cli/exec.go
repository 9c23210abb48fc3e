package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
)

func instanceExec(a *app) *cobra.Command {
	var stdin, terminal bool
	cmd := &cobra.Command{
		Use: "exec INSTANCE -- COMMAND [ARGUMENT...]", Short: "run a command in an instance",
		ValidArgsFunction: a.complete("instances"),
		Long: "Runs a command beside the program of an instance, through any server: as its user, in its directory, with " +
			"its environment and within its limits.\n\n" +
			"With -i the command gets the input, with -t it has a terminal. Without -t, its input, output and errors stay " +
			"apart, and bytes pass unchanged.\n\n" +
			"The exit code is that of the command, or 128 plus the number of the signal that killed it. The command and all " +
			"that it started are killed when it ends, when the connection breaks, when the instance's program ends or is " +
			"restarted, and when the right (instance.exec) is taken away.\n\n" +
			"If the command was not run, or its end is not known, there is an error with a code on the standard error, and " +
			"the exit code is that of the error, as of any command of outspan.\n\n" +
			"The audit log says who ran which program, and how many arguments it had, but not which.",
		Example: "outspan instance exec -it 3k9f7c -- sh\n" +
			"outspan instance exec 3k9f7c -- cat /proc/self/limits\n" +
			"tar c data | outspan instance exec -i 3k9f7c -- tar x",
		Args: func(cmd *cobra.Command, args []string) error {
			hint := "for example: outspan instance exec -it 3k9f7c -- sh"
			switch command := commandOf(args); {
			case len(command) == 0:
				return term.Usage("INSTANCE and COMMAND are needed").WithHint("%s", hint)
			case args[1] != "--" && strings.HasPrefix(command[0], "-"):
				return term.Usage("%s comes after the instance", command[0]).
					WithHint("options come before it; %s", hint)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.exec(cmd.Context(), args[0], commandOf(args), stdin, terminal)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().BoolVarP(&stdin, "stdin", "i", false, "pass the input on")
	cmd.Flags().BoolVarP(&terminal, "tty", "t", false, "give the command a terminal")
	return cmd
}

// commandOf returns what follows the instance, without the -- in front, which pflag keeps after the first argument.
func commandOf(args []string) []string {
	rest := args[min(len(args), 1):]
	if len(rest) > 0 && rest[0] == "--" {
		return rest[1:]
	}
	return rest
}

// exec runs a command in an instance. If both ends are terminals, keys pass unchanged, Ctrl-C too.
func (a *app) exec(ctx context.Context, ref string, command []string, stdin, terminal bool) error {
	o := client.ExecOptions{Command: command, Stdout: a.Out, Stderr: a.Err}
	if stdin {
		o.Stdin = a.In
	}
	if terminal {
		o.Term, o.Terminal = os.Getenv("TERM"), &api.TerminalSize{Rows: 24, Columns: 80}
		if local, ok := a.In.(*os.File); ok && stdin {
			restore, sizes := rawTerminal(ctx, local, o.Terminal)
			defer restore()
			o.Resize = sizes
		}
	}
	code, err := a.client().Instances.Exec(ctx, ref, o)
	if err != nil || code == 0 {
		return err
	}
	return term.Quiet{Code: term.ExitCode(code)}
}

// rawTerminal makes keys pass unchanged, and returns what undoes that, and the sizes that follow the first one. If the
// file is no terminal, it does nothing.
func rawTerminal(ctx context.Context, f *os.File, first *api.TerminalSize) (restore func(), _ <-chan api.TerminalSize) {
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}, nil
	}
	if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
		*first = api.TerminalSize{Rows: size.Row, Columns: size.Col}
	}
	raw := *before // as cfmakeraw(3) does
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, &raw) // then keys are echoed twice, no more
	changed, sizes := make(chan os.Signal, 1), make(chan api.TerminalSize)
	signal.Notify(changed, unix.SIGWINCH)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
			if err != nil {
				continue
			}
			select {
			case sizes <- api.TerminalSize{Rows: size.Row, Columns: size.Col}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		cancel()
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, before)
	}, sizes
}

func instanceForward(a *app) *cobra.Command {
	var bind string
	cmd := &cobra.Command{
		Use: "forward INSTANCE [LOCAL:]PORT", Short: "reach a port of an instance from this machine",
		ValidArgsFunction: a.complete("instances"), Args: term.Exactly("INSTANCE", "[LOCAL:]PORT"),
		Long: "Listens on a port of this machine, and passes TCP connections through any server to a port of an instance, " +
			"until Ctrl-C, the end or a restart of its program, or the right (instance.forward) is taken away. Says so when " +
			"nothing accepts a connection there.\n\n" +
			"PORT is the name of a port that the job declares, or its number on the node. LOCAL is the port here; without " +
			"it, or with 0, a free one is chosen. At most 64 connections are open at once.",
		Example: "outspan instance forward 3k9f7c 8080:http\noutspan instance forward 3k9f7c http",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.forward(cmd.Context(), args[0], args[1], bind)
		},
	}
	cmd.Flags().StringVar(&bind, "bind", "127.0.0.1", "the address to listen on")
	return cmd
}

func (a *app) forward(ctx context.Context, ref, ports, bind string) error {
	local, port, given := strings.Cut(ports, ":")
	if !given {
		local, port = "0", ports
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(bind, local))
	if err != nil {
		hint := fmt.Sprintf("choose another port, or leave it out: outspan instance forward %s %s", ref, port)
		var unknown *net.DNSError
		if errors.As(err, &unknown) && unknown.Name == bind || errors.Is(err, unix.EADDRNOTAVAIL) {
			hint = "--bind takes an address of this machine"
		}
		return term.Usage("can't listen on port %q of %s: %v", local, bind, err).WithHint("%s", hint)
	}
	return a.client().Instances.Forward(ctx, ref, port, l, client.ForwardOptions{
		Ready: func(number int) {
			fmt.Fprintf(a.Out, "forwarding %s to port %d of instance %s; Ctrl-C ends it\n", l.Addr(), number, ref)
		},
		Refused: func(why string) { fmt.Fprintf(a.Err, "a connection was refused: %s\n", term.OneLine(why)) },
	})
}
