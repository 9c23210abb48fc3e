package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

// outputFormat is how a command prints what it found.
type outputFormat string

// The formats of -o.
const (
	asTable outputFormat = "table"
	asJSON  outputFormat = "json"
	asYAML  outputFormat = "yaml"
	asWide  outputFormat = "wide"
	asName  outputFormat = "name"
)

// String implements pflag.Value.
func (f *outputFormat) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *outputFormat) Type() string { return "table|json|yaml|wide|name" }

// Set implements pflag.Value.
func (f *outputFormat) Set(text string) error {
	switch v := outputFormat(text); v {
	case asTable, asJSON, asYAML, asWide, asName:
		*f = v
		return nil
	}
	return fmt.Errorf("%q is not a format; use table, json, yaml, wide or name", text)
}

// outputFlags are the global flags of formats.
type outputFlags struct {
	format   outputFormat
	json     bool
	template string
	asked    bool // JSON was asked for; also known when the flags are wrong
}

func (o *outputFlags) register(fs *pflag.FlagSet) {
	o.format = asTable
	fs.VarP(&o.format, "output", "o", "how to print")
	fs.BoolVar(&o.json, "json", false, "the same as -o json")
	fs.StringVar(&o.template, "format", "", "Go template for each item, over the names of the JSON fields, such as '{{.name}} {{.state}}'")
}

// is reports whether f was asked for.
func (o *outputFlags) is(f outputFormat) bool { return o.effective() == f }

func (o *outputFlags) effective() outputFormat {
	if o.json {
		return asJSON
	}
	return o.format
}

// machine reports whether the output is for a program: then nothing but the result goes to stdout.
func (o *outputFlags) machine() bool {
	return o.template != "" || o.effective() != asTable && o.effective() != asWide
}

// askedForJSON looks for JSON in arguments that may not be valid: errors about them are JSON then, too.
func askedForJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true", "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == "json" {
				return true
			}
		}
	}
	return false
}

// shown is what a command prints, in every format.
type shown struct {
	json  []byte      // the server's own JSON
	names []string    // -o name: an id per line
	text  func(*page) // table and wide
}

// show prints s in the format that was asked for.
func (a *app) show(s shown) error {
	if a.output.template != "" {
		return printTemplate(a.shown(), a.output.template, s.json)
	}
	switch a.output.effective() {
	case asJSON:
		return printJSON(a.out, s.json)
	case asYAML:
		return printYAML(a.out, s.json)
	case asName:
		for _, name := range s.names {
			a.printf("%s\n", name)
		}
		return nil
	}
	p := &page{wide: a.output.is(asWide), colour: a.terminal && a.env("NO_COLOR") == "" && a.env("TERM") != "dumb"}
	s.text(p)
	_, err := io.WriteString(a.out, p.b.String())
	return err
}

// shownValue is for what a command makes itself: v is both its JSON and its text.
func shownValue(v any, names []string, text func(*page)) (shown, error) {
	raw, err := marshal(v)
	return shown{json: raw, names: names, text: text}, err
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return b.Bytes(), nil
}

func printJSON(w io.Writer, raw []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(raw), "", "  "); err != nil {
		return fmt.Errorf("read the server's JSON: %w", err)
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// printYAML writes JSON as YAML, in the order of the JSON. JSON is YAML already: only the style changes.
func printYAML(w io.Writer, raw []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return fmt.Errorf("read the server's JSON: %w", err)
	}
	plainStyle(&doc)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return enc.Close()
}

// plainStyle takes the style of JSON out. Texts keep their tag, so that one that looks like a number is still quoted.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plainStyle(child)
	}
}

// printTemplate runs the template over each item of a list, or over the one object there is.
func printTemplate(w io.Writer, text string, raw []byte) error {
	if !strings.Contains(text, "{{") {
		return usage("--format %s is no template: it names no field", text).WithHint("for JSON write -o json; a template is '{{.name}} {{.state}}'")
	}
	t, err := template.New("--format").Option("missingkey=error").Funcs(template.FuncMap{"json": jsonText, "join": joinAny}).Parse(text)
	if err != nil {
		return usage("--format: %s", err).WithHint("it is a Go template, such as '{{.name}} {{.state}}'")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return fmt.Errorf("read the server's JSON: %w", err)
	}
	items := []any{value}
	if object, ok := value.(map[string]any); ok {
		if list, ok := object["items"].([]any); ok {
			items = list
		}
	}
	for _, item := range items {
		var b strings.Builder
		if err := t.Execute(&b, item); err != nil {
			return usage("--format: %s", err).WithHint("see the fields with -o json")
		}
		if _, err := fmt.Fprintln(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

func jsonText(v any) (string, error) {
	raw, err := marshal(v)
	return strings.TrimSpace(string(raw)), err
}

// joinAny joins the elements of a list: {{join .warnings ", "}}.
func joinAny(list []any, sep string) string {
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, sep)
}

// isTerminal reports whether f is a terminal rather than a file or a pipe.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull && isTTY(f)
}
