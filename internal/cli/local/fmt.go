package local

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/hclfile"
)

// Fmt returns the command fmt.
func Fmt(t *term.Console) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use: "fmt FILE...", Short: "write job and configuration files in their canonical form", Args: term.AtLeast(1),
		Long: "Rewrites files in place; \"-\" reads standard input and writes standard output. With --check nothing is " +
			"written: the names of files that would change are printed, and the exit code is 1.",
		RunE: func(_ *cobra.Command, args []string) error {
			changed := 0
			for _, path := range args {
				differs, err := formatFile(t, path, check)
				if err != nil {
					return err
				}
				if differs {
					changed++
				}
			}
			if check && changed > 0 {
				return term.Quiet{Code: term.ExitOther}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only say which files would change")
	return cmd
}

func formatFile(t *term.Console, path string, check bool) (differs bool, err error) {
	src, err := ReadFile(t, path, MaxJobFile)
	if err != nil {
		return false, err
	}
	out, err := hclfile.Format(path, src)
	if err != nil {
		return false, err
	}
	differs = !bytes.Equal(src, out)
	switch {
	case path == "-" && !check:
		_, err = t.Out.Write(out)
		return differs, err
	case !differs:
		return false, nil
	}
	t.Printf("%s\n", path)
	if check {
		return true, nil
	}
	return true, replaceFile(path, out)
}

// replaceFile replaces a file atomically and keeps its mode.
func replaceFile(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return term.Usage("can't write the file: %v", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".outspan-fmt-*")
	if err != nil {
		return term.Usage("can't write %s: %v", path, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // after success there is nothing to remove
	_, err = tmp.Write(data)
	for _, next := range []func() error{func() error { return tmp.Chmod(info.Mode().Perm()) }, tmp.Sync} {
		if err == nil {
			err = next()
		}
	}
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
