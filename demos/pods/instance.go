package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/demos/internal/downstream"
	"github.com/etcdkit/etcdkit/demos/internal/waits"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// childEnv makes the program a child. It holds the settings below.
const childEnv = "PODS_CHILD"

// settings are the settings of a child.
type settings struct {
	program.Place
	Name       string // of an instance; empty for the downstream service
	Downstream string // its URL
	Limit      int
	TTL        time.Duration
	Margin     time.Duration
	Sockets    string // where instances listen as well: see backend.Front
}

// childMain runs the downstream service or an instance, until its standard input ends.
func childMain(ctx context.Context, s settings) error {
	if s.Name == "" {
		return backend.Serve(ctx, "", downstream.New().Handler())
	}
	return serve(ctx, s)
}

// The events of an instance. Their text is the policy.
const (
	evOutage = "outage"
	evOver   = "outage is over"
)

// instance is one of the three.
type instance struct {
	settings
	downstream downstream.Client
	without    atomic.Int64 // requests that run without a permit
}

// state is what an instance knows of itself.
type state struct {
	Without  int64 `json:"without"`  // requests that run without a permit
	Sessions int   `json:"sessions"` // that share the limit, as it has counted them
}

// serve runs an instance until ctx ends.
func serve(ctx context.Context, set settings) error {
	s := &instance{settings: set, downstream: downstream.Client{URL: set.Downstream}}
	sess, _, shut, err := backend.Session(ctx, set.Place, &concurrency.SessionOptions{TTL: set.TTL, Margin: set.Margin, Owner: set.Name})
	if err != nil {
		return err
	}
	defer shut()
	sem, err := newLimit(sess, set.Limit)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for _, o := range outages { // each policy has a path of its own
		limited, err := limithttp.Middleware(concurrency.Single(sem), limithttp.Options{
			Key:      func(*http.Request) (string, bool) { return "search", true },
			Wait:     wait,
			Outage:   o.policy,
			Patience: patience,
			// A full limit is 429 here and not 503, so that the table shows it apart from an outage.
			OnProblem: func(w http.ResponseWriter, _ *http.Request, p limithttp.Problem) {
				switch p.Code {
				case limithttp.CodeTotalFull:
					p.Status = http.StatusTooManyRequests
				case limithttp.CodeLost: // a search changes nothing, so a client may repeat it: no 500
					p.Status = http.StatusServiceUnavailable
				}
				w.WriteHeader(p.Status)
			},
			OnOutage: func(err error) {
				if err != nil {
					backend.Emit(evOutage, o.name)
				} else {
					backend.Emit(evOver, o.name)
				}
			},
		})
		if err != nil {
			return err
		}
		mux.Handle("POST /"+o.name, waits.Arrived(s.Name, limited(http.HandlerFunc(s.search))))
	}
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		share, _ := sem.Share()
		backend.Reply(w, http.StatusOK, state{s.without.Load(), share.Sessions})
	})
	return backend.Serve(ctx, set.Sockets, mux)
}

// newLimit returns the limit that all instances share. What an operator has set is in force: see
// AdoptLimit.
func newLimit(sess *concurrency.Session, limit int) (*concurrency.Semaphore, error) {
	return concurrency.NewSemaphore(sess, "search", limit, &concurrency.SemaphoreOptions{AdoptLimit: true})
}

// search is the handler behind the limit. The call of the downstream service ends with the context,
// which ends when the permit is lost, and carries the permit's deadline: if this process is paused
// just before it calls, the service refuses the call.
func (s *instance) search(w http.ResponseWriter, r *http.Request) {
	until, permitted := waits.Admitted(w, r)
	if !permitted {
		s.without.Add(1)
		defer s.without.Add(-1)
	}
	err := s.downstream.Work(r.Context(), "search", work, until)
	switch {
	case r.Context().Err() != nil: // the client has left, or the middleware answers
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "found")
	}
}
