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
	out, err = edited(name, file)
	return out, replaced && err == nil, err
}

// Unset is a key of the blocks of a type.
type Unset struct{ Block, Key string }

// SetFlag returns a file without some keys, and with the key flag = true in the first block of a type that lost one of
// them. A block that has nothing left is removed. The rest of the file stays as it is. Only blocks at the top level
// count. removed are the keys that the file had. Code: invalid if src exceeds a limit or can't be parsed.
func SetFlag(name string, src []byte, block, flag string, unset []Unset) (out []byte, removed []Unset, err error) {
	if _, diags := parse(name, src); diags.HasErrors() {
		return nil, nil, asError(diags)
	}
	file, diags := hclwrite.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, nil, asError(diags)
	}
	isSet := false
	for _, one := range file.Body().Blocks() {
		body, before := one.Body(), len(removed)
		for _, key := range unset {
			if key.Block == one.Type() && body.RemoveAttribute(key.Key) != nil {
				removed = append(removed, key)
			}
		}
		if len(removed) == before {
			continue
		}
		if one.Type() == block && !isSet {
			body.SetAttributeValue(flag, cty.True)
			isSet = true
		}
		if len(body.Attributes()) == 0 && len(body.Blocks()) == 0 {
			file.Body().RemoveBlock(one)
		}
	}
	out, err = edited(name, file)
	return out, removed, err
}

// edited returns the text of a file after a change. Code: invalid.
func edited(name string, file *hclwrite.File) ([]byte, error) {
	out := hclwrite.Format(file.Bytes())
	if _, diags := parse(name, out); diags.HasErrors() {
		return nil, &model.Error{Code: model.CodeInvalid, Message: name + " can't be edited"}
	}
	return out, nil
}
