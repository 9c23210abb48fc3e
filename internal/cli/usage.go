package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outspan/outspan/model"
)

// usage is an error in how a command was called: exit code 2.
func usage(format string, args ...any) *model.Error {
	return model.Refuse(model.CodeInvalid, format, args...)
}

// unknownCommand says that a word is no command here, and which one was probably meant.
func unknownCommand(cmd *cobra.Command, word string) error {
	refusal := usage("%q is not a command of %s", word, cmd.CommandPath())
	var names []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	if way := habit(cmd, word); way != "" {
		return refusal.WithHint("write: outspan %s", way)
	}
	if near := nearest(word, names); near != "" {
		return refusal.WithHint("did you mean: %s %s", cmd.CommandPath(), near)
	}
	if meant, way := nearHabit(cmd, word); meant != "" {
		return refusal.WithHint("did you mean %s? write: outspan %s", meant, way)
	}
	return refusal.WithHint("see what there is with: %s --help", cmd.CommandPath())
}

func missingVerb(cmd *cobra.Command) error {
	var names []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	return usage("%s needs a verb: %s", cmd.CommandPath(), strings.Join(names, ", ")).
		WithHint("see: %s --help", cmd.CommandPath())
}

// flagError puts what pflag says into the form of every other error.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && strings.ContainsAny(unknown.GetSpecifiedName(), "0123456789") {
		if n, bad := strconv.Atoi("-" + strings.TrimLeft(unknown.GetSpecifiedShortnames(), "-")); bad == nil {
			name := strings.TrimPrefix(cmd.CommandPath(), "outspan ")
			return usage("%q is a negative number, and %s takes none", strconv.Itoa(n), name).WithHint("write: %s", useLine(cmd))
		}
	}
	return usage("%s: %s", cmd.CommandPath(), flagText(err)).WithHint("%s", flagHint(cmd, err))
}

// exactly demands one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return wrongArgs(cmd, len(args), fmt.Sprintf("%d", len(names)))
	}
}

// atLeast demands a number of arguments, between demands one of a range.
func atLeast(least int) cobra.PositionalArgs { return between(least, 1<<16) }

func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		want := fmt.Sprintf("%d to %d", least, most)
		if most == 1<<16 {
			want = fmt.Sprintf("at least %d", least)
		}
		return wrongArgs(cmd, len(args), want)
	}
}

func wrongArgs(cmd *cobra.Command, got int, want string) error {
	return usage("%s takes %s argument(s), %d given", cmd.CommandPath(), want, got).WithHint("write: %s", useLine(cmd))
}

// useLine is how the command is written, without the global flags.
func useLine(cmd *cobra.Command) string {
	return strings.TrimSpace(cmd.Parent().CommandPath() + " " + cmd.Use)
}

// nearest returns the name that a mistyped one was probably meant to be, or "".
func nearest(word string, names []string) string {
	best, least := "", 3
	if len(word) <= 5 {
		least = 2
	}
	names = slices.Sorted(slices.Values(names))
	for _, name := range names {
		if len(word) > 2 && strings.HasPrefix(name, word) {
			return name
		}
	}
	for _, name := range names {
		if d := model.Distance(word, name); d < least {
			best, least = name, d
		}
	}
	return best
}
