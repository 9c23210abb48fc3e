package agent

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func hostPort(address string, port int) string { return net.JoinHostPort(address, strconv.Itoa(port)) }
