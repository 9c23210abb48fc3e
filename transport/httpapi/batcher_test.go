package httpapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// sender takes a second to send a batch, and records each batch.
type sender struct {
	mu      sync.Mutex
	batches [][]int
	now     int
	most    int
	gaveUp  int
	fails   error
}

func (s *sender) send(ctx context.Context, calls []int) ([]string, error) {
	s.mu.Lock()
	s.batches = append(s.batches, calls)
	s.now++
	s.most = max(s.most, s.now)
	fails := s.fails
	s.mu.Unlock()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	if err != nil {
		s.gaveUp++
		return nil, err
	}
	var answers []string
	for _, n := range calls {
		answers = append(answers, fmt.Sprint(n))
	}
	return answers, fails
}

func newTestBatcher(s *sender) *batcher[int, string] {
	return &batcher[int, string]{send: s.send, weight: func(n int) int {
		return n
	}, bounds: batchBounds{calls: 10, weight: 1000, flying: 2, time: 5 * time.Second}}
}

// A call that arrives while two batches are being sent waits, and is sent in one batch with other waiting calls.
// Batches keep the order and the bounds. Each call gets its own answer.
func TestBatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sender{}
		b := newTestBatcher(s)
		var wg sync.WaitGroup
		ask := func(n int) {
			wg.Go(func() {
				if got, err := b.do(t.Context(), n); err != nil || got != fmt.Sprint(n) {
					t.Errorf("call %d: got %q, %v", n, got, err)
				}
			})
			synctest.Wait()
		}
		for n := range 26 {
			ask(n)
		}
		ask(999) // too heavy for a batch with the calls before it
		ask(5000)
		wg.Wait()
		slices.SortFunc(s.batches, slices.Compare) // batches that are sent at the same moment have no order
		want := "[[0] [1] [2 3 4 5 6 7 8 9 10 11] [12 13 14 15 16 17 18 19 20 21] [22 23 24 25] [999] [5000]]"
		if got := fmt.Sprint(s.batches); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if s.most != 2 || b.flying != 0 || len(b.waiting) != 0 {
			t.Errorf("%d batches at once, %d left, %d calls left", s.most, b.flying, len(b.waiting))
		}
	})
}

// If a batch fails, each of its calls gets the error. Later calls work.
func TestBatcherFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sender{fails: errors.New("no")}
		b := newTestBatcher(s)
		var wg sync.WaitGroup
		for n := range 5 {
			wg.Go(func() {
				if _, err := b.do(t.Context(), n); !errors.Is(err, s.fails) {
					t.Errorf("call %d: %v", n, err)
				}
			})
		}
		wg.Wait()
		s.fails = nil
		if got, err := b.do(t.Context(), 7); got != "7" || err != nil {
			t.Errorf("after it: %q, %v", got, err)
		}
	})
}

// If sending a batch panics, the panic continues in the call that sent the batch. The other calls of the batch get an
// error, and later calls work.
func TestBatcherPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sender{}
		b := newTestBatcher(s)
		good := b.send
		b.send = func(context.Context, []int) ([]string, error) { time.Sleep(time.Second); panic("boom") }
		var wg sync.WaitGroup
		panicked := make(chan any, 20)
		for n := range 20 {
			wg.Go(func() {
				defer func() {
					if reason := recover(); reason != nil {
						panicked <- reason
					}
				}()
				if _, err := b.do(t.Context(), n); !errors.Is(err, &model.Error{Code: model.CodeInternal}) {
					t.Errorf("call %d: %v", n, err)
				}
			})
		}
		wg.Wait()
		if n := len(panicked); n == 0 || n > 5 {
			t.Errorf("%d calls panicked, want one of each batch", n)
		}
		b.send = good
		if got, err := b.do(t.Context(), 7); got != "7" || err != nil {
			t.Errorf("after it: %q, %v", got, err)
		}
	})
}

// When a call is canceled, the other calls of its batch still get their answers, even if the canceled call sends the
// batch. A batch is canceled when all its calls are canceled.
func TestBatcherHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sender{}
		b := newTestBatcher(s)
		var wg sync.WaitGroup
		ctx, hangUp := context.WithCancel(t.Context())
		ask := func(ctx context.Context, n int) {
			wg.Go(func() {
				got, err := b.do(ctx, n)
				if ctx.Err() == nil && (err != nil || got != fmt.Sprint(n)) {
					t.Errorf("call %d: got %q, %v", n, got, err)
				}
				if e, ok := errors.AsType[*model.Error](err); ok && e.Code != model.CodeTimeout {
					t.Errorf("call %d: %v", n, err)
				}
			})
			synctest.Wait()
		}
		ask(ctx, 0)         // is sent alone
		ask(t.Context(), 1) // is sent alone
		ask(ctx, 2)         // will send the batch of 2, 3 and 4
		ask(t.Context(), 3)
		ask(ctx, 4)
		time.Sleep(1500 * time.Millisecond) // the batch of 2, 3 and 4 is being sent
		ask(ctx, 5)
		impatient, goAway := context.WithCancel(t.Context())
		ask(impatient, 6) // is in no batch yet
		goAway()
		synctest.Wait()
		hangUp()
		synctest.Wait()
		wg.Wait()
		if got := fmt.Sprint(s.batches); got != "[[0] [1] [2 3 4] [5]]" {
			t.Errorf("got %s", got)
		}
		if s.gaveUp != 1 || b.flying != 0 || len(b.waiting) != 0 {
			t.Errorf("%d batches given up, %d left, %d calls left", s.gaveUp, b.flying, len(b.waiting))
		}
	})
}

// However large simultaneous reports are, each entry that they form can be encoded.
func TestReportsFitTheirEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(Server).newReports()
		var entries atomic.Int32
		b.send = func(ctx context.Context, reports []agentReport) ([]fsm.Result, error) {
			entry := fsm.Entry{Format: model.CurrentFormat, Actor: model.ActorAgents}
			for _, one := range reports {
				entry.Groups = append(entry.Groups, []fsm.Command{one.report})
			}
			time.Sleep(time.Second) // meanwhile other reports wait
			entries.Add(1)
			_, err := fsm.EncodeEntry(entry)
			return make([]fsm.Result, len(reports)), err
		}
		var wg sync.WaitGroup
		for i := range 60 {
			report := &fsm.NodeReport{ID: model.NodeID(fmt.Sprint("n", i)), Epoch: 1}
			for j := range 400 {
				report.Instances = append(report.Instances,
					model.InstanceStatus{ID: model.InstanceID(fmt.Sprint(i, "-", j)), Reason: strings.Repeat("x", 1000)})
			}
			size, refusal := fsm.GroupSize([]fsm.Command{report})
			if refusal != nil {
				t.Fatal(refusal)
			}
			wg.Go(func() {
				if _, err := b.do(t.Context(), agentReport{"agent", report, size}); err != nil {
					t.Errorf("report %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if entries.Load() < reportEntries {
			t.Errorf("%d entries", entries.Load())
		}
	})
}
