package hclfile

import "strings"

// Key describes one key that the decoder accepts in a file.
type Key struct {
	Path     string   // names of the blocks around the key, and its own name, such as job.group.check.interval
	Type     string   // values that an attribute takes, in words; "block" for a block
	Labels   []string // names of a block's labels
	Repeated bool     // a block that may appear more than once
	Required bool
}

// KeyText describes an attribute in the reference documentation. Default and Example are written as in a file.
type KeyText struct {
	Means   string
	Default string // "" means that there is no default, or that Means describes it
	Example string

	Beside string // other keys that the attribute's block needs in a valid example
	With   string // other keys and blocks that the block's group needs in a valid example
}

// Keys lists the keys of a file in the order of the fields. Each block is followed by the keys in it.
func Keys(fields ...Field) []Key { return keysBelow("", fields) }

func keysBelow(prefix string, fields []Field) []Key {
	var all []Key
	for _, f := range fields {
		if f.label != nil {
			continue
		}
		key := Key{Path: prefix + f.name, Type: f.kind, Labels: f.labels, Repeated: f.repeated, Required: f.required}
		if f.open != nil {
			key.Type = "block"
		}
		all = append(all, key)
		if f.open != nil {
			all = append(all, keysBelow(key.Path+".", f.keys())...)
		}
	}
	return all
}

// Table returns a Markdown table of the attributes of the block whose path is the parameter block. If block is "", the
// table has the attributes outside all blocks. Table returns "" if there are no attributes.
func Table(keys []Key, texts map[string]KeyText, block string) string {
	rows := ""
	for _, k := range keys {
		name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		if k.Type == "block" || strings.TrimSuffix(k.Path, name) != strings.TrimPrefix(block+".", ".") {
			continue
		}
		text := texts[k.Path]
		standard := "`" + text.Default + "`"
		if k.Required {
			standard = "needed"
		}
		rows += TableRow("`"+name+"`", k.Type, standard, "`"+text.Example+"`", text.Means)
	}
	if rows == "" {
		return ""
	}
	return "\n| key | takes | default | example | meaning |\n|---|---|---|---|---|\n" + rows
}

// TableRow returns a row of a Markdown table. It removes empty code spans from the cells, and escapes vertical bars.
func TableRow(cells ...string) string {
	for i := range cells {
		cells[i] = strings.ReplaceAll(strings.ReplaceAll(cells[i], "``", ""), "|", "\\|")
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
