package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

// Format is the output format of a command.
type Format string

// The formats of -o.
const (
	AsTable Format = "table"
	AsJSON  Format = "json"
	AsYAML  Format = "yaml"
	AsWide  Format = "wide"
	AsName  Format = "name"
)

// String implements pflag.Value.
func (f *Format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *Format) Type() string { return "table|json|yaml|wide|name" }

// Set implements pflag.Value.
func (f *Format) Set(text string) error {
	switch v := Format(text); v {
	case AsTable, AsJSON, AsYAML, AsWide, AsName:
		*f = v
		return nil
	}
	return fmt.Errorf("%q is not a format; use table, json, yaml, wide or name", text)
}

// OutputFlags are the global flags for output.
type OutputFlags struct {
	format   Format
	json     bool
	Template string
	Asked    bool // JSON was requested; set even if other flags are invalid
}

// Register adds the flags -o, --json and --format.
func (o *OutputFlags) Register(fs *pflag.FlagSet) {
	o.format = AsTable
	fs.VarP(&o.format, "output", "o", "how to print")
	fs.BoolVar(&o.json, "json", false, "the same as -o json")
	fs.StringVar(&o.Template, "format", "",
		"Go template for each item, over the names of the JSON fields, such as '{{.name}} {{.state}}'")
}

// Is reports whether Effective returns f.
func (o *OutputFlags) Is(f Format) bool { return o.Effective() == f }

// Effective returns the format that -o and --json select. A template takes precedence over this format.
func (o *OutputFlags) Effective() Format {
	if o.json {
		return AsJSON
	}
	return o.format
}

// Machine reports whether the output is for a program. If it is, only the result may be written to stdout.
func (o *OutputFlags) Machine() bool {
	return o.Template != "" || o.Effective() != AsTable && o.Effective() != AsWide
}

// AskedForJSON reports whether args request JSON. It also works if args can't be parsed, so that the error about them
// is printed as JSON.
func AskedForJSON(args []string) bool {
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

// Result is the result of a command in every format.
type Result struct {
	JSON  []byte      // as the server sent it, or from ResultOf
	Names []string    // for -o name: one id per line
	Text  func(*Page) // for the formats table and wide
}

// ResultOf returns a result whose JSON is made from v instead of a server's answer. The function text must print the
// same data for people.
func ResultOf(v any, names []string, text func(*Page)) (Result, error) {
	raw, err := Marshal(v)
	return Result{JSON: raw, Names: names, Text: text}, err
}

// Marshal encodes v as JSON on one line. It does not escape <, > and &.
func Marshal(v any) ([]byte, error) {
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

// PrintYAML converts JSON to YAML and keeps the order of the keys. JSON is already valid YAML, so only the style
// changes.
func PrintYAML(w io.Writer, raw []byte) error {
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

// plainStyle removes the JSON style of quotes and braces. Strings keep their tag, so a string that looks like a number
// stays quoted.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plainStyle(child)
	}
}

// PrintTemplate executes a template for each item of a list in JSON, or once for a single object. It refuses a text
// without {{, because such a text would print the same line for every item.
func PrintTemplate(w io.Writer, text string, raw []byte) error {
	if !strings.Contains(text, "{{") {
		return Usage("--format %s is no template: it names no field", text).
			WithHint("for JSON write -o json; a template is '{{.name}} {{.state}}'")
	}
	t, err := template.New("--format").Option("missingkey=error").
		Funcs(template.FuncMap{"json": JSONText, "join": joinAny}).Parse(text)
	if err != nil {
		return Usage("--format: %s", err).WithHint("it is a Go template, such as '{{.name}} {{.state}}'")
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
			return Usage("--format: %s", err).WithHint("see the fields with -o json")
		}
		if _, err := fmt.Fprintln(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// JSONText returns v as JSON without the trailing newline.
func JSONText(v any) (string, error) {
	raw, err := Marshal(v)
	return strings.TrimSpace(string(raw)), err
}

// joinAny joins the elements of a list in a template: {{join .warnings ", "}}.
func joinAny(list []any, sep string) string {
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, sep)
}
