package cli

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/ui"
)

func uiCommand(a *app) *cobra.Command {
	var noOpen bool
	cmd := &cobra.Command{
		Use: "ui", Short: "show the cluster as a web page, to you alone", Args: term.Exactly(),
		Long: `Serves a web page on 127.0.0.1, and opens it in a browser. The page does what you may do, by your identity, and nobody else on this machine can use it.

It writes a file that leads a browser to the page. The file works once, within 60 s. Without a desktop, or with --no-open, open the file yourself.
Ctrl-C ends the page. It ends by itself if nobody opens it within 60 s, or if nobody has used it for 8 hours.`,
		Example: "outspan ui\noutspan ui --no-open",
		RunE:    func(cmd *cobra.Command, _ []string) error { return serveUI(cmd.Context(), a, noOpen) },
	}
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "only print which file to open")
	return cmd
}

func serveUI(ctx context.Context, a *app, noOpen bool) error {
	// The page says at once that there is no leader, and asks again by itself.
	a.conn.retryFor, a.conn.waiting = leaderless, nil
	cfg, err := a.conn.config(a.Env)
	if err != nil {
		return err
	}
	noteEnd(&a.Console, cfg)
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	server, err := ui.Open(ui.Config{Forward: c.Forward, Dir: a.Env("XDG_RUNTIME_DIR")})
	if err != nil {
		return err
	}
	shown, err := term.ResultOf(struct {
		Address string `json:"address"`
		File    string `json:"file"`
	}{server.Address(), server.File()}, []string{server.File()}, func(p *term.Page) {
		p.Line("The page is at %s", server.Address())
		p.Line("Within 60 s, open %s", fileAddress(server.File()))
		p.Line("Ctrl-C ends it.")
	})
	if err == nil {
		err = a.Show(shown)
	}
	if err != nil {
		return errors.Join(err, server.Close())
	}
	if !noOpen && (a.Env("DISPLAY") != "" || a.Env("WAYLAND_DISPLAY") != "") {
		openFile(a, server.File())
	}
	return server.Run(ctx)
}

// fileAddress returns the address of a file for a browser.
func fileAddress(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// openFile opens a file with the desktop's program. It does not wait: the program may be the browser itself, which
// outlives this command. So it gets a session of its own, which Ctrl-C does not reach, and none of the variables of
// outspan.
func openFile(a *app, path string) {
	opener := exec.Command("xdg-open", path)
	opener.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	opener.Env = slices.DeleteFunc(os.Environ(), func(one string) bool { return strings.HasPrefix(one, "OUTSPAN_") })
	if err := opener.Start(); err != nil {
		a.Note("no browser was started (%v): open the file yourself", err)
		return
	}
	go func() { _ = opener.Wait() }() // ends with this command at the latest
}
