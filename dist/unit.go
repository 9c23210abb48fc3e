// Package dist has the systemd units. The files outspan-server.service and outspan-agent.service are for machines that
// people set up by hand; make install installs them. The file outspan.service is for machines that outspan sets up.
package dist

import (
	_ "embed" // for the unit
	"strings"
)

//go:embed outspan.service
var unit string

// Unit returns the text of outspan.service with another command line. The command is the absolute path of a program and
// its arguments, which may have any characters except control characters.
func Unit(command ...string) string {
	words := make([]string, len(command))
	for i, word := range command {
		if i > 0 { // systemd puts variables into arguments only
			word = strings.ReplaceAll(word, "$", "$$")
		}
		words[i] = quoted(word)
	}
	var b strings.Builder
	for line := range strings.Lines(unit) {
		if strings.HasPrefix(line, "ExecStart=") {
			line = "ExecStart=" + strings.Join(words, " ") + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// quoted returns a word as it is written in a unit. systemd replaces % even inside of quotes.
func quoted(word string) string {
	safe := strings.NewReplacer("%", "%%", `\`, `\\`, `"`, `\"`).Replace(word)
	if safe == word && !strings.ContainsAny(word, " ';") && word != "" {
		return word
	}
	return `"` + safe + `"`
}
