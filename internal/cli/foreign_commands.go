package cli

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outspan/outspan/internal/cli/term"
)

// foreignCommands maps commands of other tools to ours. A key of one word also applies after a noun if our command
// begins with that noun.
var foreignCommands = map[string]string{
	"start": "job run FILE", "submit": "job run FILE", "apply": "job run FILE", "delete": "job stop JOB --purge",
	"top": "instance ls", "ps": "instance ls", "get": "node ls, and so for every noun",
	"list": "node ls, and so for every noun", "ls": "node ls, and so for every noun",
	"describe": "status ID", "inspect": "status ID", "show": "status ID", "scale": "job scale JOB COUNT",
	"rollback": "job revert JOB", "revert": "job revert JOB", "restart": "job restart JOB",
	"cordon": "node cordon NODE", "uncordon": "node uncordon NODE", "validate": "job validate FILE",
	"snapshot": "server snapshot save FILE", "members": "server members",

	"job rm": "job stop JOB --purge", "job remove": "job stop JOB --purge", "job kill": "job stop JOB",
	"job top": "instance ls --job JOB", "job ps": "instance ls --job JOB", "job instances": "instance ls --job JOB",
	"job rollback": "job revert JOB", "job update": "job run FILE", "job create": "job run FILE",
	"job promote": "deployment promote DEPLOYMENT", "job list": "job ls", "job inspect": "job status JOB",
	"node rm": "node forget NODE", "node remove": "node forget NODE", "node delete": "node forget NODE",
	"node ps": "instance ls --node NODE", "node list": "node ls", "node eligibility": "node cordon NODE",
	"node undrain": "node uncordon NODE", "node taint": "node label NODE KEY=VALUE",
	"instance kill": "instance stop INSTANCE", "instance rm": "instance stop INSTANCE",
	"instance delete": "instance stop INSTANCE", "instance list": "instance ls", "drain start": "drain NODE",
	"server ls": "server members", "server status": "server health", "server leave": "server remove SERVER",
}

// habit returns our command for a word that another tool would accept after cmd. If the word is the plural of a noun,
// such as nodes, habit returns the command that lists these objects. Otherwise it returns "".
func habit(cmd *cobra.Command, word string) string {
	if cmd.HasParent() {
		if way, ok := foreignCommands[cmd.Name()+" "+word]; ok {
			return way
		}
	}
	if way, ok := foreignCommands[word]; ok && (!cmd.HasParent() || strings.HasPrefix(way, cmd.Name()+" ")) {
		return way
	}
	one, plural := strings.CutSuffix(word, "s")
	isNoun := func(c *cobra.Command) bool { return c.Name() == one && c.HasAvailableSubCommands() }
	if plural && !cmd.HasParent() && slices.ContainsFunc(cmd.Commands(), isNoun) {
		return one + " ls"
	}
	return ""
}

// nearHabit returns the word of another tool that is closest to a mistyped word, and our command for it. If no word is
// close, nearHabit returns two empty strings.
func nearHabit(cmd *cobra.Command, word string) (meant, way string) {
	var words []string
	for known := range foreignCommands {
		noun, verb, two := strings.Cut(known, " ")
		switch {
		case two && noun == cmd.Name():
			words = append(words, verb)
		case !two:
			words = append(words, known)
		}
	}
	meant = term.Nearest(word, words)
	if way = habit(cmd, meant); way == "" {
		return "", ""
	}
	return meant, way
}

// flagHabits maps names of flags of other tools to hints about our flags.
var flagHabits = map[string]string{
	"ignore-daemonsets": "write: --ignore-system", "ignore-system-jobs": "write: --ignore-system",
	"grace-period": "how long a program may take to end is stop { grace } of its job; for how long a drain " +
		"tries: --deadline",
	"all":      "choose nodes with: --selector k=v",
	"count":    "write the count as an argument: outspan job scale JOB COUNT",
	"replicas": "write the count as an argument: outspan job scale JOB COUNT", "state": "write: --filter state=active",
	"status": "write: --filter state=active", "sort": "lists are in the order of names; see the fields with -o json",
	"server":    "name servers with: --address https://HOST:7640",
	"token":     "callers have certificates: --client-cert and --client-key",
	"namespace": "there are no namespaces", "yes": "nothing is asked: leave it out",
	"reason": "write: -m TEXT", "n": "see: --tail",
	"config": "only servers and agents have a file; name a server with: --address",
}

func flagHint(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if near := term.Nearest(name, visibleFlags(cmd)); near != "" {
			return "did you mean: --" + near
		}
		if way, ok := flagHabits[name]; ok {
			return way
		}
		return "see the flags with: " + cmd.CommandPath() + " --help"
	case errors.As(err, &invalid):
		return "--" + invalid.GetFlag().Name + ": " + invalid.GetFlag().Usage
	}
	return "see: " + cmd.CommandPath() + " --help"
}

func visibleFlags(cmd *cobra.Command) []string {
	var names []string
	note := func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	}
	cmd.Flags().VisitAll(note)
	cmd.InheritedFlags().VisitAll(note)
	return names
}

// flagText returns the message for an error about a flag. For an invalid value, it writes a clearer message than pflag
// where it can.
func flagText(err error) string {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	given, why := strconv.Quote(invalid.GetValue()), ""
	switch kind := invalid.GetFlag().Value.Type(); {
	case errors.Is(err, strconv.ErrRange):
		why = "the number is too large"
	case kind == "bool":
		why = "it is neither true nor false"
	case kind == "int" || kind == "uint64" || kind == "int64":
		why = "it is not a whole number"
	case kind == "duration" && strings.Contains(err.Error(), "time: "): // from time.ParseDuration, not from our own parser
		why = "it is not a duration; write a number with a unit, such as 30s or 5m"
	default:
		return err.Error()
	}
	return "invalid argument " + given + " for --" + invalid.GetFlag().Name + ": " + why
}

// unknownCommand returns the error for an unknown word. Its hint is the command that was probably meant, if there is
// one.
func unknownCommand(cmd *cobra.Command, word string) error {
	refusal := term.Usage("%q is not a command of %s", word, cmd.CommandPath())
	var names []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	if way := habit(cmd, word); way != "" {
		return refusal.WithHint("write: outspan %s", way)
	}
	if near := term.Nearest(word, names); near != "" {
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
	return term.Usage("%s needs a verb: %s", cmd.CommandPath(), strings.Join(names, ", ")).
		WithHint("see: %s --help", cmd.CommandPath())
}

// flagError converts an error of pflag to the form of all other errors. It recognises a negative number, which pflag
// reports as an unknown flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && strings.ContainsAny(unknown.GetSpecifiedName(), "0123456789") {
		if n, bad := strconv.Atoi("-" + strings.TrimLeft(unknown.GetSpecifiedShortnames(), "-")); bad == nil {
			name := strings.TrimPrefix(cmd.CommandPath(), "outspan ")
			return term.Usage("%q is a negative number, and %s takes none", strconv.Itoa(n), name).
				WithHint("write: %s", term.UseLine(cmd))
		}
	}
	return term.Usage("%s: %s", cmd.CommandPath(), flagText(err)).WithHint("%s", flagHint(cmd, err))
}
