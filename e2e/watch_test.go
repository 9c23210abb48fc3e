package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// sampled has the results of cluster.sample.
type sampled struct {
	samples  int // number of samples that a server answered
	failed   int // number of samples that no server answered
	ready    int // least number of ready instances
	alive    int // least number of instances with a process, as the kernel shows
	most     int // greatest number of instances with a process
	running  int // greatest number of instances that should run and are not lost
	last     error
	atLeast  string        // instances at the sample with the fewest ready ones
	longest  time.Duration // longest time between two samples
	previous time.Time
}

// sample looks at a job every 50 ms until stop is called. Each time it asks a server through the API, and looks for the
// job's processes in the kernel's process table.
func (c *cluster) sample(name, consistency string) (stop func() sampled) {
	ctx, cancel := context.WithCancel(context.Background())
	seen := sampled{ready: 1 << 30, alive: 1 << 30}
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			c.look(&seen, name, consistency)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	return func() sampled {
		cancel()
		done.Wait()
		return seen
	}
}

func (c *cluster) look(seen *sampled, name, consistency string) {
	alive := len(c.instancesOf(name))
	var l struct{ Items []instanceView }
	err := c.get("/v1/instances?job="+name+"&consistency="+consistency, &l)
	now := time.Now()
	if !seen.previous.IsZero() {
		seen.longest = max(seen.longest, now.Sub(seen.previous))
	}
	seen.previous = now
	seen.alive, seen.most = min(seen.alive, alive), max(seen.most, alive)
	if err != nil {
		seen.failed++
		seen.last = err
		return
	}
	ready, running := 0, 0
	for _, i := range l.Items {
		if i.Ready && i.Desired == "running" {
			ready++
		}
		if i.Desired == "running" && i.Observed != "lost" {
			running++
		}
	}
	seen.samples++
	seen.running = max(seen.running, running)
	if ready < seen.ready {
		seen.ready, seen.atLeast = ready, fmt.Sprintf("%+v", l.Items)
	}
}

func (s sampled) String() string {
	return fmt.Sprintf("%d samples, at most %s apart, %d failed; ready >= %d, instances with a process %d..%d",
		s.samples, s.longest.Round(time.Millisecond), s.failed, s.ready, s.alive, s.most)
}

// probed has the results of cluster.probe.
type probed struct {
	sent, failed int
	errors       []string // the first five
}

func (p probed) String() string {
	return fmt.Sprintf("%d of %d requests failed %v", p.failed, p.sent, p.errors)
}

// probe sends 50 requests a second to the exposed port of a service until stop is called. Each request has a new
// connection, and the given agents get the requests in turn.
func (c *cluster) probe(port int, agents ...*member) (stop func() probed) {
	return c.probeExcept(port, func(string) bool { return false }, agents...)
}

// probeExcept is like probe, but sends nothing to an agent while except returns true for the agent's name. So a test
// can take a machine out of use before a reboot, as an operator does.
func (c *cluster) probeExcept(port int, except func(name string) bool, agents ...*member) (stop func() probed) {
	ctx, cancel := context.WithCancel(context.Background())
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, a := range agents { // wait for each agent, because agents learn of ready instances with a delay
		url := "http://" + net.JoinHostPort(a.address, strconv.Itoa(port)) + "/"
		for end := time.Now().Add(patience); fetch(client, url) != nil && time.Now().Before(end); {
			<-time.After(20 * time.Millisecond)
		}
	}
	var mu sync.Mutex
	var seen probed
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			at := agents[n%len(agents)]
			if except(at.Name) {
				continue
			}
			url := "http://" + net.JoinHostPort(at.address, strconv.Itoa(port)) + "/"
			done.Go(func() {
				err := fetch(client, url)
				mu.Lock()
				defer mu.Unlock()
				seen.sent++
				if err != nil {
					seen.failed++
					if len(seen.errors) < 5 {
						seen.errors = append(seen.errors, time.Now().Format("15:04:05.000")+" "+err.Error())
					}
				}
			})
		}
	})
	return func() probed {
		cancel()
		done.Wait()
		return seen
	}
}

func fetch(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// perfect asserts that requests were sent and that none failed.
func (p probed) perfect(t testing.TB) {
	t.Helper()
	if p.sent == 0 || p.failed > 0 {
		t.Errorf("%v", p)
	}
}
