package alertday

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/schedlock"
)

// demos has a process do what those of each demo do: fleet has charge of queues, pods has web, and the console's shop has the
// mutex, the election, the rate and the rest.
func (f *fleet) demos(s *concurrency.Session, process int) {
	f.fairUsers(s)
	f.flows(s, process)
	f.kept(s)
	f.cron(s)
	f.payments(s, process)
}

// fairUsers has users of a model, one of which sends as much as its limit allows.
func (f *fleet) fairUsers(s *concurrency.Session) {
	model, err := concurrency.NewKeyedLimiter(s, "model", 4, &concurrency.KeyedLimiterOptions{Total: 12})
	require.NoError(f.T, err)
	for range 2 {
		f.loop(10*time.Millisecond, func() error { return model.Key("greedy").Do(f.ctx, busy, concurrency.MaxHold(time.Minute)) })
	}
	for user := range 3 {
		f.loop(200*time.Millisecond, func() error { return model.Key(fmt.Sprint("user-", user)).Do(f.ctx, busy) })
	}
}

// flows begins work in one process, which the next one ends.
func (f *fleet) flows(s *concurrency.Session, process int) {
	flows := f.semaphore(s, "flow", 3)
	id := fmt.Sprint("flow-", process)
	f.loop(300*time.Millisecond, func() error {
		p, err := flows.Acquire(f.ctx, concurrency.ID(id))
		if err != nil {
			return err
		}
		if err := f.semaphore(f.sessions[0], "flow", 3).ReleaseID(f.ctx, id); err != nil {
			ctx, cancel := context.WithTimeout(f.watching, every)
			defer cancel()
			return errors.Join(err, p.Release(ctx))
		}
		<-p.Context().Done()
		return nil
	})
}

// kept has permits that stay in their process for a while, of different weights.
func (f *fleet) kept(s *concurrency.Session) {
	sem, err := concurrency.NewSemaphore(s, "render", 6, &concurrency.SemaphoreOptions{Handover: 100 * time.Millisecond})
	require.NoError(f.T, err)
	for _, weight := range []int{1, 2} {
		f.loop(50*time.Millisecond, func() error { return sem.Do(f.ctx, busy, concurrency.Weight(weight)) })
	}
}

// cron runs a job at its fire times, as a cron library does.
func (f *fleet) cron(s *concurrency.Session) {
	l, err := schedlock.New(s, nil)
	require.NoError(f.T, err)
	job, err := l.Job("invoices", schedlock.Periods(5*every), func(context.Context, *schedlock.Run) error { return nil }, schedlock.Retries(1))
	require.NoError(f.T, err)
	f.work.Go(func() {
		for f.ctx.Err() == nil {
			f.sleep(time.Until(job.Next(time.Now())))
			_, _ = job.RunContext(f.ctx)
		}
	})
}

// payments sends each payment twice at once. One in ten is declined.
func (f *fleet) payments(s *concurrency.Session, process int) {
	st := f.store(s, "payments", &idempotency.Options{OnLost: idempotency.Refuse, SingleTenant: true})
	once, err := idemhttp.Middleware(st, &idemhttp.Options{Wait: time.Second})
	require.NoError(f.T, err)
	handler := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("Idempotency-Key"), "0") {
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	n := 0
	f.loop(50*time.Millisecond, func() error {
		n++
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				r := httptest.NewRequestWithContext(f.ctx, http.MethodPost, "/payments", nil)
				r.Header.Set("Idempotency-Key", fmt.Sprint(process, "-", n))
				handler.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		both.Wait()
		return nil
	})
}
