package term

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/model"
)

// Usage returns an error about the arguments of a command. The command exits with code 2.
func Usage(format string, args ...any) *model.Error {
	return model.Refuse(model.CodeInvalid, format, args...)
}

// Exactly requires as many arguments as there are names.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return wrongArgs(cmd, len(args), fmt.Sprintf("%d", len(names)))
	}
}

// AtLeast requires at least the given number of arguments.
func AtLeast(least int) cobra.PositionalArgs { return Between(least, 1<<16) }

// Between requires that the number of arguments is from least to most, both included.
func Between(least, most int) cobra.PositionalArgs {
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
	return Usage("%s takes %s argument(s), %d given", cmd.CommandPath(), want, got).WithHint("write: %s", UseLine(cmd))
}

// UseLine returns the usage line of a command other than the root, without the global flags.
func UseLine(cmd *cobra.Command) string {
	return strings.TrimSpace(cmd.Parent().CommandPath() + " " + cmd.Use)
}

// Nearest returns the element of names that a mistyped or shortened word probably stands for. It returns "" if no name
// is similar.
func Nearest(word string, names []string) string {
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
