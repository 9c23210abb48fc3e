package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// fileWith decodes a configuration file that has the blocks agent, server and settings. The block of the key at path
// contains the given line.
func fileWith(t *testing.T, path, line string) *Config {
	t.Helper()
	parts := strings.Split(path, ".")
	text := line + "\n"
	for _, name := range slices.Backward(parts[:len(parts)-1]) {
		text = name + " {\n" + text + "}\n"
	}
	for _, block := range []string{"agent", "server", "settings"} {
		if parts[0] != block {
			text += block + " {\n}\n"
		}
	}
	d, c := &hclfile.Decoder{}, defaults()
	d.File("x.hcl", []byte(text), keys(c)...)
	if err := d.Err(); err != nil {
		t.Fatalf("%s: %v\n%s", path, err, text)
	}
	return c
}

// The reference explains exactly the keys that a configuration file can have. Its examples are accepted and are not the
// defaults. The defaults that it names are correct.
func TestFileReference(t *testing.T) {
	texts := allTexts()
	for _, key := range allKeys() {
		if key.Type == "block" {
			continue
		}
		k, ok := texts[key.Path]
		delete(texts, key.Path)
		if !ok || k.Means == "" || k.Example == "" || key.Type == "" {
			t.Errorf("%s (%q) is not explained: %+v", key.Path, key.Type, k)
			continue
		}
		name := key.Path[strings.LastIndexByte(key.Path, '.')+1:]
		without, with := fileWith(t, key.Path, ""), fileWith(t, key.Path, name+" = "+k.Example)
		if cmp.Equal(without, with) {
			t.Errorf("%s: the example %s is the default", key.Path, k.Example)
		}
		if refusal := with.Settings; refusal != nil && refusal.Check() != nil {
			t.Errorf("%s: the example %s is refused: %v", key.Path, k.Example, refusal.Check())
		}
		if k.Default == "" {
			continue
		}
		if diff := cmp.Diff(without, fileWith(t, key.Path, name+" = "+k.Default)); diff != "" {
			t.Errorf("%s: %s is not the default: %s", key.Path, k.Default, diff)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		t.Errorf("%s is explained, and no key", path)
	}
}

// The reference explains every setting under its name in JSON, in the order of model.Settings.
func TestSettingsReference(t *testing.T) {
	var want, got []string
	settings := reflect.TypeFor[model.Settings]()
	for i := range settings.NumField() {
		key, _, _ := strings.Cut(settings.Field(i).Tag.Get("json"), ",")
		want = append(want, key)
	}
	for _, s := range SettingTexts() {
		got = append(got, s.Key)
		if s.Type == "" || s.Default == "" || s.Means == "" {
			t.Errorf("%+v", s)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
