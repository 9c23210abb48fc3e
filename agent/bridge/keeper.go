package bridge

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// Backend makes the networks of a Keeper. Network implements it, and tests implement it in memory.
type Backend interface {
	Check() error
	Subnet() netip.Prefix
	Add(ctx context.Context, id, hostname string, mappings []Mapping) (Attachment, error)
	Adopt(id string) error
	Mapped() (ports map[string][]Mapping, err error)
	Remove(ctx context.Context, id string) error
	Sweep(ctx context.Context, keep func(id string) bool) (stays func(id string) bool, err error)
	Repair(ctx context.Context) (made int, err error)
	Lost(ctx context.Context, ids []string, tell func(id, what string)) error
	Close() error
}

// removeLimit bounds the removal of a network while the report of its instance's end waits. Tend tries again.
const removeLimit = 3 * time.Second

// Keeper knows which instances of an agent need their networks. It removes the others, also those that earlier agents
// left. Safe for concurrent use. Calls about the same instance must not overlap.
type Keeper struct {
	open func() (Backend, error)

	mu     sync.Mutex
	net    Backend // nil while there is none
	why    error   // why no instance gets a network; nil means that they get one
	uses   map[string]bool
	ending map[string]bool // instances that have ended, and whose networks are not removed yet
	// left has the ports of the machine that an earlier agent has mapped, for instances that are not in uses.
	left   map[uint16]string
	litter bool // something may be left of instances that are not in uses

	misses misses
}

// NewKeeper returns a Keeper that calls open until it succeeds.
func NewKeeper(open func() (Backend, error)) *Keeper {
	return &Keeper{open: open, why: errors.New("its agent has just started"), uses: map[string]bool{},
		ending: map[string]bool{}, litter: true}
}

// Keep returns the Keeper of a bridge.
func Keep(cfg Config) *Keeper {
	return NewKeeper(func() (Backend, error) {
		n, err := Open(cfg)
		if err != nil {
			return nil, err // not a Backend with a nil pointer
		}
		return n, nil
	})
}

// Look finds out whether instances can get networks; see State. It only looks at files. It returns the first error of
// instances whose ports can't be held, or that what an earlier agent left can't be read.
func (k *Keeper) Look() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err, first error
	if k.net != nil {
		err = k.net.Check()
	} else if k.net, err = k.open(); err == nil {
		first = k.inherit()
		for id := range k.uses {
			if err := k.net.Adopt(id); err != nil && first == nil {
				first = err
			}
		}
	}
	k.why = err
	return first
}

// inherit takes the networks that an earlier agent has left for those of instances that have ended, unless they were
// adopted. Adopt takes that back.
func (k *Keeper) inherit() error {
	ports, err := k.net.Mapped()
	k.left = map[uint16]string{}
	for id, mappings := range ports {
		if k.uses[id] {
			continue
		}
		k.ending[id], k.litter = true, true
		for _, m := range mappings {
			k.left[m.Host] = id
		}
	}
	return err
}

// State returns the subnet of instances with a network, or why they can't get one. It works on nil.
func (k *Keeper) State() (subnet string, why error) {
	if k == nil {
		return "", errors.New("its agent makes no networks for containers")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why != nil {
		return "", k.why
	}
	return k.net.Subnet().String(), nil
}

// Adopt records that an instance of an earlier agent runs, or may run, and holds its ports. The instance need not have
// a network. It works on nil. Codes: CodePortTaken, CodeFailed.
func (k *Keeper) Adopt(id string) error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uses[id] = true
	delete(k.ending, id)
	if k.net == nil {
		return nil // Look does it
	}
	return k.net.Adopt(id)
}

// Connect gives an instance a network, in which it has the host name HostName(id). It blocks as Network.Add does. It
// works on nil. Codes: no_container_network, and those of Network.Add.
func (k *Keeper) Connect(ctx context.Context, id string, mappings []Mapping) (Attachment, error) {
	if _, why := k.State(); why != nil {
		return Attachment{}, model.Refuse(model.CodeNoNetwork,
			"this node can't give a container a network of its own: %v", why)
	}
	k.mu.Lock()
	net := k.net
	k.uses[id] = true
	delete(k.ending, id)
	k.mu.Unlock()
	a, err := net.Add(ctx, id, HostName(id), mappings)
	k.misses.forget(id) // they were of an earlier network
	if err != nil {
		k.ended(id, true)
	}
	return a, err
}

// HostName returns the host name of an instance with a network.
func HostName(id string) string {
	return strings.ReplaceAll(strings.Trim(id[:min(len(id), 63)], "._-"), "_", "-")
}

// Disconnect removes the network of an instance. Call it when no process of the instance is left. It returns false if
// the removal fails, or takes longer than 3 s, also while it waits for calls of other instances. Then Tend tries again,
// and Ending is true until it succeeds. It returns true for an instance that was neither connected nor adopted. It
// works on nil.
func (k *Keeper) Disconnect(id string) (gone bool) {
	if k == nil {
		return true
	}
	k.mu.Lock()
	net, used, ending := k.net, k.uses[id], k.ending[id]
	k.mu.Unlock()
	if !used {
		return !ending
	}
	if net != nil {
		ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
		defer cancel()
		gone = net.Remove(ctx, id) == nil
	}
	k.ended(id, !gone)
	return gone
}

// Ending reports whether the instance has ended and its network is not removed yet. Its ports can't be used meanwhile.
// It works on nil.
func (k *Keeper) Ending(id string) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ending[id]
}

// EndingOn returns the instance of an earlier agent that has ended, and whose network still leads a port of the machine
// elsewhere, or "". It works on nil.
func (k *Keeper) EndingOn(port uint16) (id string) {
	if k == nil {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if id = k.left[port]; !k.ending[id] {
		return ""
	}
	return id
}

// ended records that an instance needs no network. rest says that something of its network may be left.
func (k *Keeper) ended(id string, rest bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.uses, id)
	if rest {
		k.ending[id], k.litter = true, true
	}
}

// Tend removes what is left of instances that have ended, and makes rules of the firewall again that somebody removed.
// It calls freed, which must not call the Keeper, for each instance whose network is removed now, if Disconnect
// returned false for it or an earlier agent has left the network. It returns how many rules it made. Call it when all
// instances of an earlier agent were adopted, and then every few seconds. It blocks as Network.Repair does. Code:
// CodeFailed.
func (k *Keeper) Tend(ctx context.Context, freed func(id string)) (made int, err error) {
	k.mu.Lock()
	net, litter, used := k.net, k.litter, len(k.uses) > 0
	if net == nil {
		k.mu.Unlock()
		return 0, nil
	}
	k.litter = false
	k.mu.Unlock()
	if litter {
		stays, bad := net.Sweep(ctx, k.needs)
		err = bad
		k.settle(stays, err != nil, freed)
	}
	if !used {
		return 0, err
	}
	made, bad := net.Repair(ctx)
	if err == nil {
		err = bad
	}
	return made, err
}

// settle records what a sweep has left, and calls freed for the instances whose networks are gone now, before Ending
// returns false for them. again says that something may be left.
func (k *Keeper) settle(stays func(id string) bool, again bool, freed func(id string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.ending {
		if stays(id) {
			again = true // it may have ended during the sweep
			continue
		}
		freed(id)
		delete(k.ending, id)
	}
	k.litter = k.litter || again
}

func (k *Keeper) needs(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.uses[id]
}

// Close lets go of the held ports. The networks stay. It works on nil.
func (k *Keeper) Close() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.net == nil {
		return nil
	}
	return k.net.Close()
}
