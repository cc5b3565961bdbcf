package main

import (
	"sync"
	"time"
)

// meter measures a run from its start to its end.
type meter struct {
	begun time.Time
	busy  float64
	stop  chan struct{}
	done  sync.WaitGroup
	peak  int64
}

// sampleEvery is how often the memory is looked at. What lives for less is not seen.
const sampleEvery = 250 * time.Millisecond

// measure begins to measure.
func measure() *meter {
	m := &meter{begun: time.Now(), busy: busy(), stop: make(chan struct{})}
	m.done.Go(func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			bytes, known := memory()
			m.peak = max(m.peak, bytes)
			if !known {
				return
			}
			select {
			case <-m.stop:
				return
			case <-tick.C:
			}
		}
	})
	return m
}

// end ends it, after all processes of the run have ended.
func (m *meter) end() measured {
	close(m.stop)
	m.done.Wait()
	r := measured{begun: m.begun, seconds: time.Since(m.begun).Seconds(), peak: m.peak, own: own()}
	if now := busy(); now > 0 {
		r.busy = now - m.busy
	}
	return r
}
