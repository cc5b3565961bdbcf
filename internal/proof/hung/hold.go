package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// smallFleet is how many processes of a fleet can work, on the machine that measures, without being the bound
// themselves.
const smallFleet = 6

// atOnce is how many processes of a larger fleet start at a time.
const atOnce = 16

// hold lets each process of a larger fleet hold a permit, and counts those that harm costs.
func (m *measurement) hold(ctx context.Context) (string, error) {
	var wg sync.WaitGroup
	var lost atomic.Int64
	var failed error
	var once sync.Once
	permits := make([]*concurrency.Permit, len(m.fleet))
	slots := make(chan struct{}, atOnce)
	for i, p := range m.fleet {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			mutex, err := concurrency.NewMutex(p.session, fmt.Sprint("own", i))
			if err == nil {
				permits[i], err = mutex.Lock(ctx)
			}
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return "", failed
	}
	if err := m.pass(ctx, m.calm); err != nil {
		return "", err
	}
	if _, err := m.harm(ctx); err != nil {
		return "", err
	}
	for _, p := range permits {
		context.AfterFunc(p.Context(), func() { lost.Add(1) }) // none is released
	}
	err := m.pass(ctx, 2*max(m.trouble, 15*time.Second))
	return fmt.Sprintf("permits lost %d of %d; sessions lost %d; warnings of a member left out %d",
		lost.Load(), len(permits), m.tally.ended.Load(), m.tally.refused.Load()), err
}
