package demo

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// prober sends requests to a service at a steady rate, through the exposed port of each agent in turn. Each request
// uses a new connection. The prober counts the requests and the failures.
type prober struct {
	client *http.Client

	mu      sync.Mutex
	targets []string
	sent    int
	failed  int
	last    string // the latest failure
}

// tally is a copy of what a prober has counted.
type tally struct {
	sent, failed int
	last         string
}

const probeInterval = 20 * time.Millisecond // 50 requests a second

func newProber(targets []string) *prober {
	return &prober{
		targets: targets,
		client:  &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// run sends requests until ctx is canceled. It returns when every request has been answered or has failed.
func (p *prober) run(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	var inFlight sync.WaitGroup
	defer inFlight.Wait()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p.mu.Lock()
		target := p.targets[i%len(p.targets)]
		p.mu.Unlock()
		inFlight.Go(func() { p.probe(target) })
	}
}

func (p *prober) probe(target string) {
	failure := p.ask(target)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent++
	if failure != "" {
		p.failed++
		p.last = failure
	}
}

// ask sends one request. It returns why the request failed, or "" if it succeeded.
func (p *prober) ask(target string) string {
	answer, err := p.client.Get("http://" + target + "/")
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err.Error()
	}
	if answer.StatusCode != http.StatusOK {
		return answer.Status
	}
	return ""
}

func (p *prober) tally() tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	return tally{p.sent, p.failed, p.last}
}

// avoid stops sending requests to a target whose machine is about to be killed, because a real client would then use
// another target.
func (p *prober) avoid(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = slices.DeleteFunc(slices.Clone(p.targets), func(t string) bool { return t == target })
}

func (p *prober) use(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = append(slices.Clone(p.targets), target)
}
