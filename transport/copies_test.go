package transport_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/transport"
)

// Two machines that both run are found, with both addresses. A machine that only has another address is not, and nor is
// one that only was started again.
func TestCopies(t *testing.T) {
	moved := transport.Copy{Node: "n1", First: "10.0.0.4", Second: "10.0.0.9"}
	here, there := transport.Boot{ID: "b1", Address: "10.0.0.4"}, transport.Boot{ID: "b2", Address: "10.0.0.4"}
	for name, test := range map[string]struct {
		signs func(*transport.Copies)
		want  []transport.Copy
	}{
		"refused while the first one runs": {func(c *transport.Copies) {
			for range 5 {
				c.Refused(moved, time.Now())
				time.Sleep(2 * time.Second)
			}
		}, []transport.Copy{moved}},
		"refused while the first one was heard just before": {func(c *transport.Copies) {
			heard := time.Now()
			for range 20 {
				c.Refused(moved, heard)
				time.Sleep(2 * time.Second)
			}
		}, nil},
		"refused once in a while": {func(c *transport.Copies) {
			for range 5 {
				c.Refused(moved, time.Now())
				time.Sleep(time.Hour)
			}
		}, nil},
		"started again": {func(c *transport.Copies) {
			c.Registered("n1", transport.Boot{}, here)
			c.Registered("n1", here, here)
			c.Registered("n1", here, there)
			c.Registered("n1", there, there)
			c.Registered("n1", there, transport.Boot{ID: "b3", Address: "10.0.0.5"})
		}, nil},
		"a boot id comes back": {func(c *transport.Copies) {
			c.Registered("n1", here, there)
			time.Sleep(time.Second)
			c.Registered("n1", there, here)
		}, []transport.Copy{{Node: "n1", First: "10.0.0.4 (boot id b1)", Second: "10.0.0.4 (boot id b2)"}}},
		"the copy was stopped": {func(c *transport.Copies) {
			c.Registered("n1", here, there)
			c.Registered("n1", there, here)
			time.Sleep(11 * time.Minute)
		}, nil},
		"more nodes than it keeps": {func(c *transport.Copies) {
			c.Registered("n1", here, there)
			for i := range 1000 {
				time.Sleep(time.Millisecond)
				c.Refused(transport.Copy{Node: fmt.Sprint("x", i)}, time.Now())
			}
			c.Registered("n1", there, here)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := transport.NewCopies()
				test.signs(c)
				if got := c.Found(); !slices.Equal(got, test.want) {
					t.Errorf("found %+v, want %+v", got, test.want)
				}
			})
		})
	}
}
