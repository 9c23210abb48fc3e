package ui

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// watched notes how long each picture takes: what runs in the frames of the browser.
const watched = `(() => { window.took = []; const real = window.requestAnimationFrame
	window.requestAnimationFrame = f => real(now => {
		const begun = performance.now()
		f(now)
		if (window.took.length < 20000) window.took.push(performance.now() - begun)
	}) })()`

// TestLargeFleet shows 5,000 nodes and 100,000 instances of which 1,000 change each second, and prints what that costs.
// OUTSPAN_PAGE_BENCH says for how long, such as 90s. Only a leak, or a page that stands still, is an error.
func TestLargeFleet(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("OUTSPAN_PAGE_BENCH"))
	if err != nil {
		t.Skip("it measures: OUTSPAN_PAGE_BENCH=90s")
	}
	browser := startBrowser(t)
	s := newSynthetic(t, 5000, 1000, 100)
	quiet := s.busy(t, 10*time.Second)

	begun := time.Now()
	v := openFleet(t, browser, s)
	v.mapped()
	t.Logf("first picture: %v after the page was opened, %d bytes of frames",
		time.Since(begun).Round(time.Millisecond), s.bytes.Load())
	v.run("location.hash = '#/problems'")
	v.until("!document.querySelector('canvas')")
	v.run(watched)
	begun = time.Now()
	v.run("location.hash = '#/fleet'")
	v.mapped()
	t.Logf("the map again, with the stream open: %v", time.Since(begun).Round(time.Millisecond))
	v.shootMap("map-5000", false)
	v.shootMap("map-5000-dark", true)
	v.run("took.length = 0")

	worker, err := browser.Worker(t.Context(), "worker.js")
	v.do(err)
	memory := func() (tab, shared int64) {
		tab, err := v.Memory(t.Context())
		v.do(err)
		shared, err = worker.Memory(t.Context())
		v.do(err)
		return tab, shared
	}
	s.busy(t, length/6)
	tab, shared := memory()
	sent := s.bytes.Load()
	used := s.busy(t, length)
	sent = s.bytes.Load() - sent
	tabAfter, sharedAfter := memory()
	t.Logf("memory: tab %d kB, after %v %d kB; worker %d kB, then %d kB",
		tab>>10, length, tabAfter>>10, shared>>10, sharedAfter>>10)
	if tabAfter > tab+tab/4+4<<20 || sharedAfter > shared+shared/4+4<<20 {
		t.Error("the page holds more and more memory")
	}
	t.Logf("stream: %d bytes/s", sent/int64(length.Seconds()))
	t.Logf("server with the page: %.1f %% of a core; with the changes alone: %.1f %%", used, quiet)
	var frames struct{ N, Mean, P99, Worst float64 }
	v.do(v.Eval(t.Context(), `(() => { took.sort((a, b) => a - b); const n = took.length
		const mean = took.reduce((a, b) => a + b, 0) / n
		return { N: n, Mean: mean, P99: took[Math.floor(n * .99)], Worst: took[n - 1] } })()`, &frames))
	t.Logf("pictures: %.0f, mean %.2f ms, p99 %.1f ms, worst %.1f ms", frames.N, frames.Mean, frames.P99, frames.Worst)
	if frames.N < 10 {
		t.Error("the map stands still")
	}
	v.hasRows(s)
	for range 4 {
		more := newTab(t, browser, v.served)
		more.do(more.Open(t.Context(), v.served.Address()+"/#/fleet"))
		more.mapped()
	}
	five := s.busy(t, 10*time.Second)
	t.Logf("five tabs: %d streams, %d connections, server %.1f %% of a core",
		s.streams.Load(), connections(t, v.served.host), five)
	if s.streams.Load() != 1 {
		t.Error("five tabs have more than one stream")
	}
}

// busy changes 1,000 instances a second, and returns the part of a core that this process used, in percent.
func (s *synthetic) busy(t *testing.T, length time.Duration) float64 {
	t.Helper()
	used, begun := processorTime(t), time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for time.Since(begun) < length {
		<-tick.C
		s.changeSome(100)
	}
	return 100 * float64(processorTime(t)-used) / float64(time.Since(begun))
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// connections returns how many connections a server has.
func connections(t *testing.T, host string) (n int) {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(host, "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "01" {
			n++
		}
	}
	return n
}
