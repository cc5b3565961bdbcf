package batch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/batch"
)

// Time in these tests is that of a synctest bubble.

// job is what is sent in these tests. Jobs of one kind do not go together.
type job struct {
	batch.Place
	id, kind int
}

// desk is a queue, and what was sent through it.
type desk struct {
	q     *batch.Queue[*job]
	mu    sync.Mutex
	took  time.Duration // of each request
	ended bool          // no goroutine is started any more
	log   []string
	most  int // under way at a time
	now   int
}

const company = time.Minute // the bound on waiting for it

func newDesk(atOnce, most int) *desk {
	d := &desk{took: time.Second}
	d.q = &batch.Queue[*job]{AtOnce: atOnce, Most: most, Wait: company,
		Fits: func(with []*job, j *job) bool {
			for _, w := range with {
				if w.kind == j.kind {
					return false
				}
			}
			return true
		},
		Send: func(jobs []*job) {
			d.request(fmt.Sprint("together", ids(jobs)))
			for _, j := range jobs {
				j.Notify()
			}
		},
		Go: func(fn func()) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			if !d.ended {
				go fn()
			}
			return !d.ended
		},
	}
	return d
}

func ids(jobs []*job) (all []int) {
	for _, j := range jobs {
		all = append(all, j.id)
	}
	return all
}

func (d *desk) set(took time.Duration, ended bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.took, d.ended = took, ended
}

// requests returns what was sent, and how many were under way at a time.
func (d *desk) requests() (log []string, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log), d.most
}

func (d *desk) request(what string) {
	d.mu.Lock()
	d.log = append(d.log, what)
	d.now++
	d.most = max(d.most, d.now)
	took := d.took
	d.mu.Unlock()
	time.Sleep(took)
	d.mu.Lock()
	d.now--
	d.mu.Unlock()
}

// join has one sent and returns the error of Join.
func (d *desk) join(ctx context.Context, id, kind int) error {
	turn, err := d.q.Join(ctx, &job{id: id, kind: kind})
	switch {
	case err != nil:
		return err
	case turn == batch.First:
		defer d.q.Next()
	}
	if turn != batch.Together {
		d.request(fmt.Sprint("alone", id))
	}
	return nil
}

// come has them come, one after the other but at the same time.
func (d *desk) come(t *testing.T, wg *sync.WaitGroup, kinds ...int) {
	for id, kind := range kinds {
		wg.Go(func() {
			if err := d.join(t.Context(), id, kind); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
}

// The first are sent alone, at once; later ones are sent together, in order, as
// many as may and as fit.
func TestRequestsDuringASendAreSentTogether(t *testing.T) {
	for name, tt := range map[string]struct {
		kinds []int
		want  []string
		took  time.Duration
	}{
		"one":                     {[]int{0}, []string{"alone0"}, time.Second},
		"few":                     {[]int{0, 1}, []string{"alone0", "alone1"}, time.Second},
		"many":                    {[]int{0, 1, 2, 3, 4, 5, 6}, []string{"alone0", "alone1", "together[2 3 4]", "together[5 6]"}, 2 * time.Second},
		"some do not fit":         {[]int{0, 1, 2, 2, 3, 2}, []string{"alone0", "alone1", "together[2 4]", "together[3]", "together[5]"}, 3 * time.Second},
		"as those that were sent": {[]int{0, 0, 0}, []string{"alone0", "alone1", "together[2]"}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(2, 3)
				var wg sync.WaitGroup
				begun := time.Now()
				d.come(t, &wg, tt.kinds...)
				wg.Wait()
				log, most := d.requests()
				require.ElementsMatch(t, tt.want, log)
				require.LessOrEqual(t, most, 2)
				require.Equal(t, tt.took, time.Since(begun))
				require.NoError(t, d.join(t.Context(), 9, 9))
				log, _ = d.requests()
				require.Equal(t, "alone9", log[len(log)-1], "it continues as it began")
			})
		})
	}
}

// A request that hangs holds up the others no longer than the bound, and those are no more
// waited for.
func TestNoRequestWaitsForOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(1, 3)
		d.set(time.Hour, false)
		var wg sync.WaitGroup
		begun := time.Now()
		d.come(t, &wg, 0)
		d.set(time.Second, false)
		require.NoError(t, d.join(t.Context(), 1, 1))
		require.Equal(t, company+time.Second, time.Since(begun))
		require.Zero(t, d.q.Waiting())
		wg.Wait()
		log, _ := d.requests()
		require.Equal(t, []string{"alone0", "alone1"}, log)
	})
}

// Whose ctx ends while it waits goes alone at once, which sees to that; whose ctx ends under
// way is reported, and was sent.
func TestTheEndOfCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(1, 3)
		var wg sync.WaitGroup
		d.come(t, &wg, 0)
		waiting, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		begun := time.Now()
		require.NoError(t, d.join(waiting, 1, 1))
		require.Equal(t, 3*time.Second/2, time.Since(begun))
		wg.Wait()

		begun = time.Now()
		d.come(t, &wg, 0)
		underWay, cancel := context.WithTimeout(t.Context(), 3*time.Second/2)
		defer cancel()
		require.ErrorIs(t, d.join(underWay, 2, 2), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second/2, time.Since(begun))
		wg.Wait()
		time.Sleep(time.Hour)
		log, _ := d.requests()
		require.Equal(t, []string{"alone0", "alone1", "alone0", "together[2]"}, log)
	})
}

// Where no goroutine is started any more, everybody goes alone before long.
func TestWithoutGoroutinesAllGoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(1, 3)
		var wg sync.WaitGroup
		d.come(t, &wg, 0, 1, 2)
		d.set(time.Second, true)
		begun := time.Now()
		wg.Wait()
		require.Equal(t, company+time.Second, time.Since(begun))
		log, _ := d.requests()
		require.ElementsMatch(t, []string{"alone0", "alone1", "alone2"}, log)
		require.NoError(t, d.join(t.Context(), 3, 3))
		require.Equal(t, company+2*time.Second, time.Since(begun))
	})
}

// Each has its own bound on waiting, by one timer for all, also if the first of them have gone.
func TestEachWaitsAsLongAsItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(1, 3)
		d.set(time.Hour, false)
		var wg sync.WaitGroup
		d.come(t, &wg, 0)
		d.set(0, false)
		begun := time.Now()
		for id, after := range []time.Duration{0, company / 3, company / 2} {
			wg.Go(func() {
				time.Sleep(after)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				if id == 1 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				if err := d.join(ctx, id+1, id); err != nil {
					t.Error(err)
				}
				want := company + after
				if id == 1 {
					want = after + time.Second
				}
				if got := time.Since(begun); got != want {
					t.Errorf("%d was sent after %v, not %v", id+1, got, want)
				}
			})
		}
		wg.Wait()
		log, _ := d.requests()
		require.Equal(t, []string{"alone0", "alone2", "alone1", "alone3"}, log)
	})
}
