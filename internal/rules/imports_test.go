package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// arrows lists which other rooms each room may import. docs/architecture.md explains rooms. Each additional import
// couples two rooms. Test files are not checked.
var arrows = map[string][]string{
	"model":     {"internal/canon"},
	"api":       {"model", "rights"},
	"rights":    {"model"},
	"fsm":       {"model", "rights", "internal/canon"},
	"reconcile": {"model", "fsm"},
	"fleet":     {"model", "fsm", "api"},
	"series":    {"model", "rights", "fsm", "api"},
	"sim":       {"model", "fsm", "reconcile", "internal/testbed/invariant"},
	"pki":       {"model"}, // below client and transport, so that both load and check certificates in the same way
	"keyring":   {"model", "internal/durable"},
	"client":    {"model", "rights", "api", "pki", "internal/duplex", "internal/reach"},
	"audit":     {"model"},
	"transport": {"model", "rights", "fsm", "fleet", "series", "api", "audit", "pki", "jobfile", "internal/duplex",
		"internal/reach"},
	"cluster": {"model", "fsm", "pki", "transport", "internal/durable"},
	"trust":   {"model", "fsm", "keyring", "pki", "transport", "api"},
	"agent": {"model", "api", "pki", "transport", "agent/image", "agent/bridge", "internal/duplex", "internal/durable",
		"internal/erase", "internal/reach"},
	"agent/image":  {"model"},
	"agent/bridge": {"model"},
	"config": {"model", "agent", "cluster", "transport", "internal/hclfile", // fills the Config structs of three rooms
		"internal/oidc"},
	"jobfile":  {"model", "internal/hclfile"},
	"rolefile": {"model", "rights", "internal/hclfile"},
	"cmd":      {"internal/cli", "internal/daemon"},
	"dist":     {},
	"e2e": {"model", "api", "pki", "fsm", "agent", "cluster", "config", "reconcile", "transport", "internal/reach",
		"internal/procs", "internal/testbed/invariant"}, // procs starts processes; invariant judges logs
	"bench": {"model", "api", "fsm", "cluster", "pki", "transport", "internal/reach",
		"internal/procs", "internal/testbed/crowd"},
	"examples": {"model", "config", "jobfile", "internal/hclfile"},

	"internal/canon": {},
	"internal/cli": {"model", "rights", "api", "client", "agent", "cluster", "config", "jobfile", "rolefile", "transport",
		"pki", "internal/cli/local", "internal/cli/term", "internal/daemon", "internal/oidc", "internal/ui"},
	"internal/cli/local": {"model", "fsm", "agent", "cluster", "config", "jobfile", "keyring", "pki", "transport",
		"dist", "internal/cli/term", "internal/durable", "internal/hclfile", "internal/daemon", "internal/demo",
		"internal/procs"},
	"internal/cli/term": {"model", "api"}, // uses only the exit codes of api
	"internal/daemon": {"model", "api", "fsm", "agent", "audit", "cluster", "config", "keyring", "reconcile",
		"pki", "series", "transport", "trust", "internal/oidc", "internal/ui/door"},
	"internal/demo":       {"internal/procs"},
	"internal/draw":       {},
	"internal/duplex":     {},
	"internal/durable":    {},
	"internal/erase":      {},
	"internal/fuzzall":    {},
	"internal/hclfile":    {"model"},
	"internal/mutants":    {},
	"internal/oidc":       {"model"},
	"internal/plant":      {},
	"internal/procs":      {},
	"internal/reach":      {"model", "api"},
	"internal/rules":      {},
	"internal/testreport": {},
	"internal/ui":         {"model", "api", "client"},
	"internal/ui/door":    {"model", "api", "audit", "internal/ui"}, // the API is an http.Handler

	"internal/testbed/ctrd":       {},
	"internal/testbed/chrome":     {"internal/procs"},
	"internal/testbed/chrome/axe": {"internal/testbed/chrome"},
	"internal/testbed/crowd":      {"model", "cluster", "pki", "transport"},
	"internal/testbed/idp":        {},
	"internal/testbed/invariant":  {"model", "fsm"},
	"internal/testbed/memdisk":    {},
	"internal/testbed/memnet":     {},
}

// planted is the package of the planted bugs. Code that a bug would change asks this package whether the bug is
// planted. A build without the tag planted contains none of the bugs.
const planted = module + "/internal/plant"

// homes maps a library to the only rooms, besides guests, that may import it. The types of the library must not appear
// in other rooms.
var homes = map[string][]string{
	"github.com/hashicorp/raft":        {"cluster"},
	"github.com/hashicorp/raft-boltdb": {"cluster"},
	"go.etcd.io/bbolt":                 {"cluster"},
	"github.com/hashicorp/memberlist":  {"cluster"},
	"github.com/tidwall/btree":         {"fsm"},
	"github.com/hashicorp/hcl":         {"internal/hclfile", "config", "jobfile"},
	"github.com/zclconf/go-cty":        {"internal/hclfile", "jobfile"},
	"github.com/danielgtaylor/huma":    {"transport"},
	"github.com/spf13/cobra":           {"internal/cli"},
	"github.com/coreos/go-oidc":        {"internal/oidc"},
	"github.com/containerd":            {"agent/image"},
	"github.com/distribution":          {"agent/image"},
	"github.com/opencontainers":        {"agent/image"},
	"golang.org/x/oauth2":              {"internal/oidc"},
	"github.com/zitadel/oidc":          {"internal/testbed/idp"}, // a provider for tests
	"github.com/go-jose/go-jose":       {"internal/testbed/idp"},
	"github.com/containernetworking":   {"agent/bridge"},
}

// guests lists further rooms that may import a library of homes. These rooms measure the library, or replace the disk
// or the network that the library uses.
var guests = map[string][]string{
	"github.com/opencontainers":       {"agent"}, // agent/driver/oci writes what an OCI runtime reads
	"github.com/hashicorp/raft":       {"bench", "internal/testbed/memdisk"},
	"github.com/hashicorp/memberlist": {"internal/testbed/memnet"},
}

// barred lists packages that a room must not import: clocks, randomness, and everything outside the process. A name
// also stands for all packages below it.
var barred = map[string][]string{
	"model": {"time", "math/rand", "crypto/rand", "net", "os", "log", "syscall", "runtime",
		"unsafe", "context", "io/fs"},
	"fsm": {"time", "math/rand", "crypto/rand", "net", "os", "log", "syscall", "runtime",
		"unsafe", "context", "io/fs"},
	"reconcile": {"math/rand", "crypto/rand", "net", "os", "log", "syscall", "unsafe", "io/fs"},

	"internal/testbed/invariant": {"time", "math/rand", "crypto/rand", "net", "os", "log", "syscall", "runtime",
		"unsafe", "context", "io/fs"},
}

// libraries lists the only libraries that a room may import besides the standard library. Rooms that are not listed may
// use any library that homes allows them.
var libraries = map[string][]string{
	"model":          {"github.com/fxamacker/cbor"},
	"api":            {},
	"client":         {},
	"pki":            {},
	"keyring":        {},
	"fsm":            {"github.com/fxamacker/cbor", "github.com/tidwall/btree"},
	"internal/reach": {"github.com/oklog/ulid"},
}

func importFindings(s source) []string {
	var found []string
	for _, f := range s.files {
		for _, spec := range f.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if path == "context" && waits(s, spec) {
				continue
			}
			if why := barredImport(s.room(), path); why != "" {
				found = append(found, fmt.Sprintf("%s: %s", s.at(spec), why))
			}
		}
	}
	return found
}

// barredImport returns why room must not import path, or "" if room may import it.
func barredImport(room, path string) string {
	to, known := arrows[room]
	if !known {
		return fmt.Sprintf("room %q stands in no table of imports; a new room needs its arrows there", room)
	}
	if path == planted && slices.Contains([]string{"model", "fsm", "reconcile", "cluster", "trust"}, room) {
		return ""
	}
	if other := roomOf(path); other != "" && other != room && !slices.Contains(to, other) {
		return fmt.Sprintf("%s must not import %s", room, other)
	}
	for library, rooms := range homes {
		home := slices.ContainsFunc(rooms, func(h string) bool { return within(room, h) })
		if within(path, library) && !home && !slices.Contains(guests[library], room) {
			return fmt.Sprintf("%s is used in %s only", library, strings.Join(rooms, ", "))
		}
	}
	if slices.ContainsFunc(barred[room], func(b string) bool { return within(path, b) }) {
		return fmt.Sprintf("%s must not import %s", room, path)
	}
	library := strings.Contains(path, ".") && roomOf(path) == ""
	if own, limited := libraries[room]; limited && library && !slices.ContainsFunc(own, func(l string) bool {
		return within(path, l)
	}) {
		return fmt.Sprintf("%s must not import the library %s", room, path)
	}
	return ""
}

func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

func TestImports(t *testing.T) {
	for _, s := range tree(t) {
		none(t, importFindings(s))
	}
}

func TestBarredImport(t *testing.T) {
	tests := []struct {
		room, path string
		barred     bool
	}{
		{"fsm", "fmt", false},
		{"fsm", "time", true},
		{"fsm", module + "/model", false},
		{"model", "time", true},
		{"model", module + "/fsm", true},
		{"model", "github.com/tidwall/btree", true},
		{"model", "github.com/fxamacker/cbor/v2", false},
		{"client", module + "/api", false},
		{"client", module + "/internal/reach", false},
		{"client", module + "/pki", false},
		{"pki", module + "/transport", true},
		{"keyring", module + "/internal/durable", false},
		{"keyring", module + "/fsm", true},
		{"keyring", module + "/pki", true},
		{"keyring", "golang.org/x/crypto/scrypt", true},
		{"fsm", module + "/keyring", true},
		{"client", module + "/transport", true},
		{"client", "github.com/oklog/ulid/v2", true},
		{"agent", module + "/model", false},
		{"agent", module + "/fsm", true},
		{"config", module + "/fsm", true},
		{"fsm", "math/rand/v2", true},
		{"fsm", "math/bits", false},
		{"fsm", "net/http", true},
		{"fsm", module + "/transport", true},
		{"fsm", "github.com/tidwall/btree", false},
		{"fsm", "github.com/hashicorp/go-hclog", true},
		{"reconcile", "time", false}, // the loop has a timer; determinismFindings checks the use of clocks
		{"reconcile", "github.com/hashicorp/raft", true},
		{"reconcile", module + "/fsm", false},
		{"reconcile", module + "/cluster", true},
		{"sim", module + "/reconcile", false},
		{"sim", module + "/cluster", true},
		{"transport", module + "/transport/httpapi", false},
		{"transport", module + "/cluster", true},
		{"agent", module + "/cluster", true},
		{"agent", "github.com/containerd/containerd/v2/client", true},
		{"agent", "github.com/opencontainers/runtime-spec/specs-go", false},
		{"agent/image", "github.com/containerd/containerd/v2/client", false},
		{"agent/image", module + "/agent/driver", true},
		{"agent", "github.com/hashicorp/memberlist", true},
		{"trust", module + "/cluster", true},
		{"trust", module + "/transport", false},
		{"cluster", "github.com/hashicorp/raft-boltdb/v2", false},
		{"cluster", module + "/reconcile", true},
		{"config", module + "/reconcile", true},
		{"config", "github.com/hashicorp/hcl/v2", false},
		{"jobfile", "github.com/hashicorp/hcl/v2", false},
		{"jobfile", module + "/config", true},
		{"transport", "github.com/hashicorp/hcl/v2", true},
		{"internal/cli", "github.com/spf13/cobra", false},
		{"internal/cli", module + "/fsm", true},
		{"internal/cli", module + "/internal/cli/local", false},
		{"internal/cli/local", module + "/fsm", false},
		{"internal/cli/local", "github.com/spf13/cobra", false},
		{"internal/cli/local", module + "/internal/cli", true},
		{"internal/cli/term", module + "/client", true},
		{"internal/cli/local", module + "/client", true},
		{"fsm", module + "/internal/plant", false},
		{"trust", module + "/internal/plant", false},
		{"fsm", module + "/internal/rules", true},
		{"agent", module + "/internal/plant", true},
		{"internal/demo", module + "/internal/procs", false},
		{"internal/demo", module + "/fsm", true},
		{"internal/testbed/memnet", "github.com/hashicorp/memberlist", false},
		{"internal/testbed/memnet", "github.com/hashicorp/raft", true},
		{"internal/testbed/memnet", module + "/internal/testbed/memdisk", true},
		{"internal/testbed/memdisk", module + "/cluster", true},
		{"cluster", module + "/internal/testbed/memdisk", true},
		{"internal/oidc", "github.com/coreos/go-oidc/v3/oidc", false},
		{"transport", "github.com/coreos/go-oidc/v3/oidc", true},
		{"internal/oidc", "github.com/zitadel/oidc/v3/pkg/op", true},
		{"internal/daemon", module + "/internal/testbed/idp", true},
		{"internal/testbed/invariant", "time", true},
		{"internal/testbed/invariant", module + "/reconcile", true},
		{"sim", module + "/internal/testbed/invariant", false},
		{"sim", module + "/internal/testbed/memnet", true},
		{"internal/testbed/other", "fmt", true},
		{"shared", "fmt", true},
	}
	for _, tt := range tests {
		if why := barredImport(tt.room, tt.path); (why != "") != tt.barred {
			t.Errorf("%s importing %s: %q, want barred = %v", tt.room, tt.path, why, tt.barred)
		}
	}
}

func TestImportFindingsReadSource(t *testing.T) {
	s := fixture(t, module+"/fsm", "package fsm\nimport (\n\t\"fmt\"\n\t\"time\"\n)\nvar _ = fmt.Sprint(time.Now())\n")
	want(t, importFindings(s), "fixture.go:4: fsm must not import time")
}
