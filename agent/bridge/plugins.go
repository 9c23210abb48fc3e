package bridge

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// cniVersion is the version of CNI that all plugins understand since their release 1.0.
const cniVersion = "1.0.0"

// ifName is the container's interface.
const ifName = "eth0"

type object = map[string]any

// loopback brings up the interface lo of a container.
func (n *Network) loopback() object {
	return n.list("lo", object{"type": "loopback"})
}

// bridge gives a container an address behind the bridge. The plugin makes no firewall rule: guard does, since a plugin
// can't be asked to make a rule again.
func (n *Network) bridge() object {
	return n.list("net", object{
		"type": "bridge", "bridge": n.Device(), "isGateway": true, "isDefaultGateway": true, "hairpinMode": true,
		"mtu": uplinkMTU(n.cfg.Address),
		"ipam": object{
			"type": "host-local", "dataDir": n.cfg.Dir + "/leases",
			"ranges": [][]object{{{"subnet": n.Subnet().String()}}},
		},
	})
}

// portmap leads ports of the machine to a container. Its list is separate from the bridge's, and has the bridge's
// result in it, so that it can be called again after a reload of the firewall.
func (n *Network) portmap(result *current.Result) object {
	plugin := object{"type": "portmap", "capabilities": object{"portMappings": true}, "snat": true}
	if result != nil {
		result.CNIVersion = cniVersion // libcni may have converted it to a newer one
		plugin["prevResult"] = result
	}
	return n.list("ports", plugin)
}

func (n *Network) list(name string, plugin object) object {
	return object{"cniVersion": cniVersion, "name": n.listName(name), "plugins": []object{plugin}}
}

func (n *Network) listName(name string) string { return "outspan-" + n.tag + "-" + name }

// runtime describes a container to the plugins.
func (n *Network) runtime(id string, mappings []Mapping) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: id, NetNS: n.netns(id), IfName: ifName}
	if len(mappings) == 0 {
		return rt
	}
	var ports []object
	for _, m := range mappings {
		ports = append(ports, object{"hostPort": m.Host, "containerPort": m.Container, "protocol": "tcp",
			"hostIP": n.cfg.Address.String()})
	}
	rt.CapabilityArgs = object{"portMappings": ports}
	return rt
}

// mappingsOf returns the mappings with which the plugin portmap was called.
func mappingsOf(rt *libcni.RuntimeConf) ([]Mapping, error) {
	text, err := json.Marshal(rt.CapabilityArgs["portMappings"])
	if err != nil {
		return nil, failed("read the ports of "+rt.ContainerID, err)
	}
	var ports []struct{ HostPort, ContainerPort uint16 }
	if err := json.Unmarshal(text, &ports); err != nil {
		return nil, failed("read the ports of "+rt.ContainerID, err)
	}
	var mappings []Mapping
	for _, p := range ports {
		mappings = append(mappings, Mapping{Host: p.HostPort, Container: p.ContainerPort})
	}
	return mappings, nil
}

// operation is what the plugins of a list are asked to do.
type operation string

const (
	add operation = "ADD"
	del operation = "DEL"
)

// call asks the plugins of a list, and returns the result of an add. Blocks for at most pluginLimit. Code: CodeFailed.
func (n *Network) call(ctx context.Context, list object, rt *libcni.RuntimeConf, op operation) (*current.Result,
	error) {
	ctx, cancel := context.WithTimeout(ctx, pluginLimit)
	defer cancel()
	conf, err := parse(list)
	if err != nil {
		return nil, err
	}
	var result types.Result
	if op == del {
		err = n.cni.DelNetworkList(ctx, conf, rt)
	} else {
		result, err = n.cni.AddNetworkList(ctx, conf, rt)
	}
	if err != nil {
		return nil, failed(fmt.Sprintf("CNI %s %s for %s", op, conf.Name, rt.ContainerID), err)
	}
	if op == del {
		return nil, nil
	}
	return current.GetResult(result)
}

func parse(list object) (*libcni.NetworkConfigList, error) {
	text, err := json.Marshal(list)
	if err != nil {
		return nil, failed("encode the configuration of plugins", err)
	}
	conf, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		return nil, failed("read the configuration of plugins", err)
	}
	return conf, nil
}

// detach undoes what the plugins made for a container, in the reverse order. It also undoes what a plugin left that
// failed.
func (n *Network) detach(ctx context.Context, id string) error {
	for _, list := range []object{n.portmap(nil), n.bridge(), n.loopback()} {
		rt, _, err := n.remembered(list, id)
		if err != nil || rt == nil {
			// There is no result, or one that can't be read. The plugins find their work by the id. The plugin portmap does
			// nothing without ports, but does not look at their numbers.
			rt = n.runtime(id, []Mapping{{Host: 1, Container: 1}})
		}
		if kept, err := isNetns(rt.NetNS); err != nil || !kept {
			rt.NetNS = "" // it is gone, for example after a reboot: the plugins free the rest
		}
		if _, err := n.call(ctx, list, rt, del); err != nil {
			return err
		}
	}
	return nil
}

// remembered returns the arguments with which the plugins of a list were called for a container, and their result.
// libcni keeps both in files. It returns nil if the plugins were not called.
func (n *Network) remembered(list object, id string) (*libcni.RuntimeConf, *current.Result, error) {
	conf, err := parse(list)
	if err != nil {
		return nil, nil, err
	}
	was, rt, err := n.cni.GetNetworkListCachedConfig(conf, n.runtime(id, nil))
	if err != nil || len(was) == 0 {
		return nil, nil, err
	}
	stored, err := n.cni.GetNetworkListCachedResult(conf, rt)
	if err != nil {
		return nil, nil, failed("read the result of plugins for "+id, err)
	}
	result, err := current.GetResult(stored)
	return rt, result, err
}
