package main

import (
	"fmt"
	"go/ast"
	"sort"
	"strings"
)

// edit is one change of a file. It replaces the bytes from at to at+cut by text, or only inserts text if cut is 0. No
// text has a line break, so line numbers stay the same.
type edit struct {
	at, cut int
	text    string
	kind    place
}

// place orders the edits at one offset: first those that end a node, and last those that begin a node.
type place int

const (
	ends place = iota
	instead
	begins
)

func (f *finder) wrap(n ast.Node, begin, end string) {
	f.before(n, begin)
	f.edits = append(f.edits, edit{at: f.offset(n.End()), text: end, kind: ends})
}

func (f *finder) before(n ast.Node, text string) {
	f.edits = append(f.edits, edit{at: f.offset(n.Pos()), text: text, kind: begins})
}

// apply returns the file with all its edits. In f.edits, the edits of a node come before the edits of the nodes inside
// it. So edits that begin nodes at the same offset keep their order, and edits that end nodes at the same offset are
// reversed.
func (f *finder) apply() []byte {
	order := make([]int, len(f.edits))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, k int) bool {
		a, b := f.edits[order[i]], f.edits[order[k]]
		switch {
		case a.at != b.at:
			return a.at < b.at
		case a.kind != b.kind:
			return a.kind < b.kind
		case a.kind == ends:
			return order[i] > order[k]
		}
		return order[i] < order[k]
	})
	var out strings.Builder
	done := 0
	for _, i := range order {
		e := f.edits[i]
		out.Write(f.source[done:e.at])
		out.WriteString(e.text)
		done = e.at + e.cut
	}
	out.Write(f.source[done:])
	return []byte(out.String())
}

// switchSource returns the source of a file that is added to a package. The functions in it know which mutant is
// switched on, and log which mutants are reached.
func switchSource(pkg string, mutants int) string {
	return fmt.Sprintf(switchText, pkg, mutants+1)
}

const switchText = `package %s

import (
	"cmp"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
)

var (
	mutantChosen = mutantNumber("MUTANT")
	mutantLog    = mutantOpen()
	mutantHit    [%d]atomic.Bool
)

func mutantNumber(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return 0
	}
	return n
}

// mutantOpen limits the process, and opens the file that tells what was reached.
func mutantOpen() *os.File {
	for what, name := range map[int]string{syscall.RLIMIT_CPU: "MUTANT_CPU", syscall.RLIMIT_AS: "MUTANT_MEMORY"} {
		if n := uint64(mutantNumber(name)); n > 0 {
			if err := syscall.Setrlimit(what, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
				panic(err)
			}
		}
	}
	name := os.Getenv("MUTANT_LOG")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}

func mutantIs(id int) bool {
	if mutantLog != nil {
		mutantReached(id)
	}
	return id == mutantChosen
}

func mutantReached(id int) {
	if mutantHit[id].CompareAndSwap(false, true) {
		if _, err := mutantLog.WriteString(strconv.Itoa(id) + "\n"); err != nil {
			panic(err)
		}
	}
}

func mutantNot[B ~bool](id int, v B) B { return v != B(mutantIs(id)) }

// A mutant of a comparison counts as reached only by two equal values, because only for these it changes the result.
func mutantLess[T cmp.Ordered](id int, a, b T) bool { return a < b || a == b && mutantIs(id) }

func mutantAtMost[T cmp.Ordered](id int, a, b T) bool { return a < b || a == b && !mutantIs(id) }

func mutantMore[T cmp.Ordered](id int, a, b T) bool { return a > b || a == b && mutantIs(id) }

func mutantAtLeast[T cmp.Ordered](id int, a, b T) bool { return a > b || a == b && !mutantIs(id) }

func mutantAnd(id int, a bool, b func() bool) bool {
	if mutantIs(id) {
		return a || b()
	}
	return a && b()
}

func mutantOr(id int, a bool, b func() bool) bool {
	if mutantIs(id) {
		return a && b()
	}
	return a || b()
}

type mutantNumeric interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

func mutantPlus[T mutantNumeric](id int, a, b T) T {
	if mutantIs(id) {
		return a - b
	}
	return a + b
}

func mutantMinus[T mutantNumeric](id int, a, b T) T {
	if mutantIs(id) {
		return a + b
	}
	return a - b
}
`
