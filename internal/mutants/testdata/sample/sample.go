// Package sample is small code for the tests of mutants. Each function has one change of each kind.
package sample

type counter struct{ sum int }

// between is held by a test at its lower bound only.
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

// forgotten is reached by no test.
func forgotten() bool { return false }

// endless ends in any build but one that changes it.
func endless(n int) int {
	for n > 0 {
		n--
	}
	return n
}
