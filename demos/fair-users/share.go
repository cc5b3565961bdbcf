package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/demos/internal/downstream"
	"github.com/etcdkit/etcdkit/demos/internal/waits"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// greedy is the name of the greedy user; the others have numbers.
const greedy = "greedy"

func name(i int) string { return fmt.Sprintf("user-%02d", i+1) }

// shared is how the users shared the model, in one of the two ways.
type shared struct {
	Peak   int     `json:"peak"` // by the model's own count
	Greedy usage   `json:"greedy"`
	Users  []usage `json:"users"`
	P50    float64 `json:"users_wait_p50_s"` // of all users but the greedy one
	P95    float64 `json:"users_wait_p95_s"`
	Failed int     `json:"failed"` // requests without an answer of the model
}

// usage is what one user got.
type usage struct {
	User   string  `json:"user"`
	Served int     `json:"served"`
	Peak   int     `json:"peak"` // by the model's own count
	P50    float64 `json:"wait_p50_s"`
	P95    float64 `json:"wait_p95_s"`
}

// share lets all users send requests for a while.
func (d *demo) share(ctx context.Context, way string, to **shared) error {
	if _, err := d.model.Reset(ctx); err != nil {
		return err
	}
	answers := map[string][]waits.Answer{}
	var mu sync.Mutex
	ask := func(user string) {
		a := d.client.Post(ctx, "/"+way+"/"+user)
		mu.Lock()
		defer mu.Unlock()
		answers[user] = append(answers[user], a)
	}
	ending, end := context.WithCancel(ctx)
	defer end()
	var wg sync.WaitGroup
	repeat := func(user string, pause func() time.Duration) {
		wg.Go(func() {
			for program.Sleep(ending, pause()) == nil {
				ask(user)
			}
		})
	}
	for range d.greedy {
		repeat(greedy, func() time.Duration { return time.Millisecond })
	}
	err := program.Sleep(ctx, 500*time.Millisecond) // the queue is long
	for i := range d.users {
		repeat(name(i), func() time.Duration { return time.Second + rand.N(time.Second) })
	}
	if err == nil {
		err = program.Sleep(ctx, d.load)
	}
	end()
	wg.Wait()
	if err != nil {
		return err
	}
	b, err := d.model.Book(ctx)
	if err == nil {
		*to = tally(answers, b, d.users)
	}
	return err
}

// tally counts the answers of all users.
func tally(answers map[string][]waits.Answer, b downstream.Book, users int) *shared {
	s := &shared{}
	var quiet []time.Duration
	one := func(user string) usage {
		u := usage{User: user, Peak: b.Peaks[user]}
		var waited []time.Duration
		for _, a := range answers[user] {
			if a.Status != http.StatusOK || a.Without {
				s.Failed++
				continue
			}
			u.Served++
			waited = append(waited, a.Waited)
		}
		if user != greedy {
			quiet = append(quiet, waited...)
		}
		u.P50, u.P95 = waits.Percentile(waited, 50), waits.Percentile(waited, 95)
		return u
	}
	s.Peak, s.Greedy = b.Peak, one(greedy)
	for i := range users {
		s.Users = append(s.Users, one(name(i)))
	}
	s.P50, s.P95 = waits.Percentile(quiet, 50), waits.Percentile(quiet, 95)
	return s
}
