// Package sample is a small program for the tests of mutants. Its functions have changes of most kinds.
package sample

type counter struct{ sum int }

// The test of between checks only the lower bound.
func between(low, n, high int) bool {
	return low <= n &&
		n < high
}

func (c *counter) add(list []string) (int, error) {
	for i, s := range list {
		if s == "" || s == "-" {
			continue
		}
		c.sum += i + 1
	}
	return c.sum, nil
}

func kind(n int, known func() bool) string {
	switch {
	case n > 9, n < 0:
		return "far"
	case known():
		return "known"
	}
	return ""
}

// No test reaches forgotten.
func forgotten() bool { return false }

// endless returns, unless a mutant changes it.
func endless(n int) int {
	for n > 0 {
		n--
	}
	return n
}
