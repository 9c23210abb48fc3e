package model

import (
	"maps"
	"slices"
	"strings"
)

// agentNames is the prefix of the environment variables that an agent sets for an instance.
const agentNames = "OUTSPAN_"

// checkExec refuses a command or an environment that is invalid. A command without a slash is valid, because it is
// looked up in the instance's PATH. A relative path is refused, because the instance's directory is empty at the start.
func (g *GroupSpec) checkExec() *Error {
	command := g.Exec.Command
	switch {
	case command == "":
		return RefuseAt(KeyPath("exec", "command"), "exec has no command")
	case strings.Contains(command, "/") && !strings.HasPrefix(command, "/") && !strings.HasPrefix(command, "${"):
		return RefuseAt(KeyPath("exec", "command"),
			"command %q is no absolute path, and the directory of an instance is empty at its start", command).
			WithHint("write the whole path, or only the name of a program that is in PATH")
	}
	return g.checkEnv()
}

func (g *GroupSpec) checkEnv() *Error {
	for _, name := range slices.Sorted(maps.Keys(g.Env)) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(g.Env[name], "\x00"):
			return RefuseAt(KeyPath("env"), "env %q is no name of an environment variable", name)
		case strings.HasPrefix(name, agentNames):
			return RefuseAt(KeyPath("env"), "env has %s: names that begin with %s are the agent's", name, agentNames).
				WithHint("choose another name")
		}
	}
	return nil
}
