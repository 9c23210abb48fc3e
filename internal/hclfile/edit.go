package hclfile

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/outspan/outspan/model"
)

// ReplaceKey returns a file without a key in the blocks of a type. A block that had it gets the key with, a list of
// texts, unless texts is empty. The rest of the file stays as it is. Only blocks at the top level count. replaced is
// false if no block has the key. Code: invalid if src exceeds a limit or can't be parsed.
func ReplaceKey(name string, src []byte, block, key, with string, texts []string) (out []byte, replaced bool,
	err error) {
	if _, diags := parse(name, src); diags.HasErrors() {
		return nil, false, asError(diags)
	}
	file, diags := hclwrite.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, false, asError(diags)
	}
	values := make([]cty.Value, len(texts))
	for i, text := range texts {
		values[i] = cty.StringVal(text)
	}
	for _, one := range file.Body().Blocks() {
		body := one.Body()
		if one.Type() != block || body.RemoveAttribute(key) == nil {
			continue
		}
		replaced = true
		if len(values) > 0 {
			body.SetAttributeValue(with, cty.ListVal(values))
		}
	}
	out = hclwrite.Format(file.Bytes())
	if _, diags := parse(name, out); diags.HasErrors() {
		return nil, false, &model.Error{Code: model.CodeInvalid, Message: name + " can't be edited"}
	}
	return out, replaced, nil
}
