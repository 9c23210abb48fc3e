package rolefile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// File is the content of one file.
type File struct {
	Roles    []rights.Role
	Bindings []rights.Binding
}

// binding is a block binding { } of a file, which stands for a rights.Binding for each subject and each group.
type binding struct {
	role     rights.RoleName
	subjects []string
	groups   []string
}

// group is the prefix of a rights.Binding to a group.
const group = "group:"

// content is what the fields of a file refer to.
type content struct {
	roles    []rights.Role
	bindings []binding
}

func (c *content) fields() []hclfile.Field {
	return []hclfile.Field{
		hclfile.Blocks("role", &c.roles, rights.Role{}, func(r *rights.Role) []hclfile.Field {
			return []hclfile.Field{hclfile.Label(&r.Name),
				hclfile.Blocks("allow", &r.Allow, rights.Grant{}, func(g *rights.Grant) []hclfile.Field {
					fields := []hclfile.Field{
						hclfile.Texts("verbs", &g.Verbs).Checked(func() (string, string) { return wrongVerb(g.Verbs) }).Required()}
					for _, list := range g.Lists() {
						fields = append(fields, names(list.Name, list.Patterns))
					}
					return fields
				})}
		}),
		hclfile.Blocks("binding", &c.bindings, binding{}, func(b *binding) []hclfile.Field {
			return []hclfile.Field{hclfile.Text("role", &b.role).Required(), hclfile.Texts("subjects", &b.subjects),
				hclfile.Texts("groups", &b.groups)}
		}),
	}
}

// names is a list of names of a grant. If it is given, it must not be empty.
func names(key string, to *[]string) hclfile.Field {
	return hclfile.Texts(key, to).Checked(func() (summary, detail string) {
		for _, pattern := range *to {
			if refusal := rights.CheckPattern(key, pattern); refusal != nil {
				return "Wrong name", refusal.Message + "; " + refusal.Hint + "."
			}
		}
		if *to == nil || len(*to) > 0 {
			return "", ""
		}
		message, hint := rights.EmptyList(key)
		return "Empty list", message + "; " + hint + "."
	})
}

// wrongVerb returns what is wrong with a list of verbs.
func wrongVerb(verbs []rights.VerbPattern) (summary, detail string) {
	for _, v := range verbs {
		if refusal := v.Check(); refusal != nil {
			return "No such verb", refusal.Message + "; " + refusal.Hint + "."
		}
	}
	return "", ""
}

// Parse reads a file with roles and bindings. Error messages call the file by the given name. An error is a
// *model.Error with the code invalid. It lists all mistakes in syntax, keys, types and verbs, one per line. Without
// such mistakes, it names the first role or binding that can't be stored.
func Parse(name string, src []byte) (File, error) {
	var c content
	d := &hclfile.Decoder{}
	d.File(name, src, c.fields()...)
	if err := d.Err(); err != nil {
		return File{}, err
	}
	f := File{Roles: c.roles}
	for i := range f.Roles {
		if refusal := f.Roles[i].Check(); refusal != nil {
			key := cmp.Or(refusal.Key, model.KeyPath("role", string(f.Roles[i].Name)))
			key = strings.NewReplacer("[", "/", "]", "").Replace(key) // PlaceOf wants allow/1 for allow[1]
			refusal.Message = d.PlaceOf(key, name) + ": " + refusal.Message
			return File{}, refusal
		}
	}
	for i, one := range c.bindings {
		at := d.PlaceOf(fmt.Sprintf("binding/%d", i), name)
		subjects := slices.Clone(one.subjects)
		for _, g := range one.groups {
			subjects = append(subjects, group+g)
		}
		if len(subjects) == 0 {
			return File{}, model.Refuse(model.CodeInvalid, "%s: the binding of the role %s names nobody",
				at, one.role).WithHint(`write subjects = ["cert:alice"] or groups = ["shop"]`)
		}
		for _, to := range subjects {
			b := rights.Binding{Role: one.role, To: to}
			if refusal := b.Check(); refusal != nil {
				refusal.Message = at + ": " + refusal.Message
				return File{}, refusal
			}
			f.Bindings = append(f.Bindings, b)
		}
	}
	if len(f.Roles)+len(f.Bindings) == 0 {
		return File{}, model.Refuse(model.CodeInvalid, "%s has no role and no binding", name).
			WithHint("write role \"NAME\" { allow { verbs = [\"node.read\"] } }; for an example: outspan role show viewer")
	}
	return f, nil
}

// Print returns roles as a file that Parse reads.
func Print(roles ...rights.Role) (string, error) {
	c := content{roles: roles}
	p := hclfile.Printer{}
	return p.Print(c.fields()...)
}
