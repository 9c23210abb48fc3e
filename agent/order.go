package agent

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
)

// sortedKeys lets a map be walked in an order that does not depend on chance.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func hostPort(address string, port int) string { return net.JoinHostPort(address, strconv.Itoa(port)) }
