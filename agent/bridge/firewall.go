package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/outspan/outspan/model"
)

// rule is one rule of the firewall.
type rule struct {
	table, chain string
	match        []string
}

// rules returns what the bridge needs: its containers reach the outside under the machine's address, and connections to
// mapped ports pass on machines that forward nothing by default. From elsewhere only these ports are open, not the
// containers' own addresses, and containers don't reach the machine's loopback addresses, to which the plugin portmap
// opens the bridge (route_localnet). The kernel asks the tables raw and mangle before filter, so the order of the rules
// in filter does not matter for what is dropped.
func (n *Network) rules() []rule {
	mark := []string{"-m", "comment", "--comment", n.mark()}
	with := func(words string) []string { return append(strings.Fields(words), mark...) }
	dev := n.Device()
	return []rule{
		{"raw", "PREROUTING", with("-i " + dev + " -d 127.0.0.0/8 -j DROP")},
		{"mangle", "FORWARD", with("-o " + dev + " ! -i " + dev +
			" -m conntrack ! --ctstate ESTABLISHED,RELATED,DNAT -j DROP")},
		{"nat", "POSTROUTING", with("-s " + n.Subnet().String() + " ! -o " + dev + " -j MASQUERADE")},
		{"filter", "FORWARD", with("-i " + dev + " -j ACCEPT")},
		{"filter", "FORWARD", with("-o " + dev + " -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")},
		{"filter", "FORWARD", with("-o " + dev + " -m conntrack --ctstate DNAT -j ACCEPT")},
	}
}

// guard makes the rules that are missing, and returns how many were. Codes: CodeUnavailable, CodeFailed.
func (n *Network) guard(ctx context.Context) (missing int, err error) {
	n.guarded = true
	for _, r := range n.rules() {
		if has, err := r.call(ctx, "-C"); err != nil || has {
			if err != nil {
				return missing, err
			}
			continue
		}
		missing++
		if done, err := r.call(ctx, "-I"); err != nil || !done {
			return missing, errors.Join(err, model.Refuse(CodeFailed, "iptables made no rule in %s", r.chain))
		}
	}
	return missing, nil
}

// unguard removes all rules of this node, also those of an earlier subnet.
func (n *Network) unguard(ctx context.Context) error {
	for _, table := range []string{"nat", "filter", "mangle", "raw"} {
		rules, err := run(ctx, "iptables", "-w", "20", "-t", table, "-S")
		if err != nil {
			return failed("list the rules of the firewall", err)
		}
		for line := range strings.Lines(rules) {
			before, after, own := strings.Cut(line, `"`+n.mark()+`"`)
			words := strings.Fields(before)
			if !own || words[0] != "-A" {
				continue
			}
			words = append(append(words[2:], n.mark()), strings.Fields(after)...)
			if _, err := (rule{table, strings.Fields(before)[1], words}).call(ctx, "-D"); err != nil {
				return failed("remove a rule of the firewall", err)
			}
		}
	}
	return nil
}

// mark is the comment of all rules of this node.
func (n *Network) mark() string { return "outspan " + n.tag }

// call runs iptables for the rule with -C, -I or -D. It returns false if iptables says that there is no such rule.
func (r rule) call(ctx context.Context, op string) (bool, error) {
	args := append([]string{"-w", "20", "-t", r.table, op, r.chain}, r.match...)
	_, err := run(ctx, "iptables", args...)
	if exit := (*exec.ExitError)(nil); op != "-I" && errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// run runs a program and returns what it printed. Blocks for at most pluginLimit. Codes: CodeUnavailable if there is no
// such program; CodeFailed with its words.
func run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pluginLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return "", model.Refuse(CodeUnavailable, "no program %s", name).WithHint("install %s", name)
	}
	if err != nil {
		return "", &programError{name, strings.TrimSpace(said.String()), err}
	}
	return said.String(), nil
}

// programError is the failure of a program, with what it printed.
type programError struct {
	name, said string
	err        error
}

func (e *programError) Error() string { return e.name + ": " + e.said + ": " + e.err.Error() }
func (e *programError) Unwrap() error { return e.err }

// Repair makes rules of the firewall again that somebody removed, for example by reloading it. It returns how many of
// them it made: the bridge's rules, and one for each container that lost its ports. Without containers it does nothing.
// Otherwise it runs iptables seven times, whatever their number. It returns the first error, and goes on. Blocks for
// less than a second, at most some minutes if another program holds the lock of the firewall. Code: CodeFailed.
func (n *Network) Repair(ctx context.Context) (made int, err error) {
	if err := n.lock(ctx); err != nil {
		return 0, err
	}
	defer n.unlock()
	ids, err := n.attached()
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if made, err = n.guard(ctx); err != nil {
		return made, err
	}
	rules, err := run(ctx, "iptables", "-w", "20", "-t", "nat", "-S")
	if err != nil {
		return made, failed("list the rules of the firewall", err)
	}
	var first error
	for _, id := range ids {
		rt, result, err := n.remembered(n.portmap(nil), id)
		if err == nil && rt != nil && !mapped(rules, n.listName("ports"), id, result.IPs[0].Address.IP.String()) {
			if _, err = n.call(ctx, n.portmap(result), rt, add); err == nil {
				made++
			}
		}
		if first == nil {
			first = err
		}
	}
	return made, first
}

// mapped reports whether the rules of the table nat lead to the ports of a container. The plugin's own CHECK can't be
// used: up to release 1.1 it also wants rules for IPv6, and fails without them.
func mapped(rules, list, id, address string) bool {
	var entered, named, led bool
	for line := range strings.Lines(rules) {
		entered = entered || strings.HasPrefix(line, "-A PREROUTING") && strings.Contains(line, "CNI-HOSTPORT-DNAT")
		named = named || strings.Contains(line, fmt.Sprintf(`dnat name: \"%s\" id: \"%s\"`, list, id))
		led = led || strings.Contains(line, "--to-destination "+address+":")
	}
	return entered && named && led
}
