package jobfile

import (
	"cmp"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// Parse reads a job file. Error messages call the file by the given name. The result has no defaults; JobSpec.Expand
// adds them. An error is a *model.Error with the code invalid. It lists all mistakes in syntax, keys and types, one per
// line. Without such mistakes, it names the first value that JobSpec.Check or JobSpec.CheckNew refuses.
func Parse(name string, src []byte) (model.JobSpec, error) {
	spec, d, err := decode(name, src)
	if err != nil {
		return spec, err
	}
	expanded := spec.Expand()
	if refusal := cmp.Or(expanded.Check(), expanded.CheckNew()); refusal != nil {
		at := d.PlaceOf(strings.Join([]string{"job", string(spec.Name), refusal.Key}, "/"), name)
		refusal.Message = at + ": " + refusal.Message
		return spec, refusal
	}
	return spec, nil
}

// decode reads a job file without checking the values against each other.
func decode(name string, src []byte) (model.JobSpec, *hclfile.Decoder, error) {
	var spec model.JobSpec
	d := &hclfile.Decoder{}
	body := d.File(name, src, jobKeys(&spec)...)
	if err := d.Err(); err != nil {
		return spec, d, hclfile.Hinted(err, noJobFile(name, body, d))
	}
	return spec, d, nil
}

// Print returns spec as a job file. If spec is expanded, parsing the file gives spec again.
func Print(spec model.JobSpec) (string, error) {
	p := hclfile.Printer{Filled: filledIn}
	return p.Print(jobKeys(&spec)...)
}

// noJobFile returns a hint if the file does not seem to be a job file, otherwise "". The parameter body is nil if the
// file could not be parsed.
func noJobFile(name string, body hcl.Body, d *hclfile.Decoder) string {
	const example = "a job file is HCL; for an example: outspan job init"
	switch {
	case hclfile.Has(body, "server", "agent", "data_dir"):
		return "this is a file of a server or an agent; check it with: outspan config validate " + name
	case hclfile.Has(body, "job"):
		return ""
	case hclfile.Has(body, "group"):
		return "put it into: job \"NAME\" { ... }"
	case body != nil || d.NoHCL():
		return example
	}
	return ""
}
