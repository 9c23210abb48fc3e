package config

import (
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/outspan/outspan/model"
)

// Key is one key of a job file, as the decoder takes it.
type Key struct {
	Path     string   // blocks and key from the top, with dots: job.group.check.interval
	Type     string   // what an attribute takes, in words; of a block "block"
	Labels   []string // of a block
	Repeated bool     // a block that may stand more than once
	Required bool
}

// keyList collects the keys of a file instead of decoding one.
type keyList struct {
	path []string
	all  []Key
}

// JobKeys lists every key of a job file in the order of the decoder's own tables.
func JobKeys() []Key {
	d := &decoder{keys: &keyList{}}
	var spec model.JobSpec
	d.job(hcl.EmptyBody(), &spec)
	return d.keys.all
}

// list notes the keys of a body, and goes into its blocks.
func (d *decoder) list(fields []field) {
	k := d.keys
	for _, f := range fields {
		k.path = append(k.path, f.name)
		path := strings.Join(k.path, ".")
		key := Key{Path: path, Type: f.kind, Labels: f.labels, Repeated: f.repeated, Required: f.required}
		if f.open != nil {
			key.Type = "block"
		}
		k.all = append(k.all, key)
		if f.open != nil {
			f.open(d, &hcl.Block{Type: f.name, Labels: f.labels, Body: hcl.EmptyBody()})
		}
		k.path = k.path[:len(k.path)-1]
	}
}
