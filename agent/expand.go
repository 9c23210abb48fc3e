package agent

import (
	"strconv"
	"strings"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// nodeFacts is what an instance may know about its node.
type nodeFacts struct {
	id      model.NodeID
	name    string
	address string
	labels  map[string]string
}

// values has the values for the variables in an instance's spec: ${port.NAME}, ${node.id}, ${node.name},
// ${node.label.X} and ${slot}.
type values struct {
	node nodeFacts
	slot int
	port map[string]int // by the name of the port
}

func (v values) lookup(name string) (string, bool) {
	switch name {
	case "node.id":
		return string(v.node.id), true
	case "node.name":
		return v.node.name, true
	case "slot":
		return strconv.Itoa(v.slot), true
	}
	if port, ok := strings.CutPrefix(name, "port."); ok {
		n, known := v.port[port]
		return strconv.Itoa(n), known
	}
	if label, ok := strings.CutPrefix(name, "node.label."); ok {
		value, known := v.node.labels[label]
		return value, known
	}
	return "", false
}

// isAgentVariable reports whether name, the string between ${ and }, has the form of an agent's variable: "slot", or
// words joined by dots. Anything else, such as ${HOME} or ${1:-x} of a shell, belongs to the program and stays
// unchanged.
func isAgentVariable(name string) bool {
	if name == "slot" {
		return true
	}
	words := strings.Split(name, ".")
	for _, w := range words {
		if w == "" || strings.IndexFunc(w, func(r rune) bool { return !strings.ContainsRune(wordRunes, r) }) >= 0 {
			return false
		}
	}
	return len(words) > 1
}

const wordRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// expand replaces the variables in text, and "$${" by a literal "${". It returns CodeInvalid for an unknown variable.
// The error message begins with where, for example "env HOME".
func (v values) expand(where, text string) (string, error) {
	var out strings.Builder
	for rest := text; ; {
		at := strings.Index(rest, "${")
		if at < 0 {
			out.WriteString(rest)
			return out.String(), nil
		}
		if at > 0 && rest[at-1] == '$' {
			out.WriteString(rest[:at-1] + "${")
			rest = rest[at+2:]
			continue
		}
		name, after, closed := strings.Cut(rest[at+2:], "}")
		if !closed || !isAgentVariable(name) {
			out.WriteString(rest[:at+2])
			rest = rest[at+2:]
			continue
		}
		value, known := v.lookup(name)
		if !known {
			return "", model.Refuse(model.CodeInvalid, "%s has the unknown variable ${%s}", where, name).
				WithHint("known are %s; write $${ for a literal ${", v.known())
		}
		out.WriteString(rest[:at] + value)
		rest = after
	}
}

func (v values) known() string {
	list := []string{"node.id", "node.name", "slot"}
	for _, name := range sortedKeys(v.port) {
		list = append(list, "port."+name)
	}
	for _, name := range sortedKeys(v.node.labels) {
		list = append(list, "node.label."+name)
	}
	return strings.Join(list, ", ")
}

func (v values) expandAll(where string, texts []string) ([]string, error) {
	out := make([]string, len(texts))
	for i, text := range texts {
		var err error
		if out[i], err = v.expand(where+" "+strconv.Itoa(i+1), text); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// environment returns an instance's environment, except what the driver adds (PATH, user, OUTSPAN_DIR, OUTSPAN_RUN,
// OUTSPAN_INSTANCE_ID). The env in the group's spec can't override the variables that the agent sets.
func (v values) environment(a transport.Assignment, volumeDir func(name string) string,
	services map[model.ServiceName]int,
	peers string,
) (map[string]string, error) {
	env := make(map[string]string, len(a.Spec.Env)+12)
	for _, key := range sortedKeys(a.Spec.Env) {
		value, err := v.expand("env "+key, a.Spec.Env[key])
		if err != nil {
			return nil, err
		}
		env[key] = value
	}
	_, group := a.Group.Split()
	env["OUTSPAN_JOB"], env["OUTSPAN_GROUP"] = string(a.Job), group
	env["OUTSPAN_SLOT"] = strconv.Itoa(a.Slot)
	env["OUTSPAN_ATTEMPT"] = strconv.FormatUint(a.Attempt, 10) // 0 = the group's first instance ever
	env["OUTSPAN_MEMBER_ID"] = memberID(a.Group, a.Slot)
	env["OUTSPAN_NODE"], env["OUTSPAN_NODE_ID"] = v.node.name, string(v.node.id)
	env["OUTSPAN_IP"] = v.node.address
	env["OUTSPAN_PEERS"] = peers
	for name, port := range v.port {
		env["OUTSPAN_PORT_"+envName(name)] = strconv.Itoa(port)
	}
	if a.Spec.Bridged() { // OUTSPAN_IP becomes the container's address once it is known
		env["OUTSPAN_HOST_IP"] = v.node.address
		for name, port := range a.Ports {
			env["OUTSPAN_HOST_PORT_"+envName(name)] = strconv.Itoa(port)
		}
	}
	for _, volume := range a.Spec.Volumes {
		env["OUTSPAN_VOLUME_"+envName(volume.Name)] = volumeDir(volume.Name)
	}
	if a.Fencing != 0 {
		env["OUTSPAN_FENCING_EPOCH"] = strconv.FormatUint(a.Fencing, 10)
	}
	for name, port := range services {
		env["OUTSPAN_SERVICE_"+envName(string(name))] = hostPort(v.node.address, port)
	}
	return env, nil
}

// envName turns a name into a part of the name of an environment variable: "http-alt" becomes HTTP_ALT.
func envName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}
