package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/examples/internal/backend"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
	"github.com/etcdkit/etcdkit/examples/internal/downstream"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// childEnv makes the program a child. It holds the settings below.
const childEnv = "PODS_CHILD"

// settings are the settings of a child.
type settings struct {
	Name       string // of an instance; empty for the downstream service
	Downstream string // its URL
	Endpoints  []string
	Namespace  string
	Limit      int
	TTL        time.Duration
	Margin     time.Duration
}

func isChild() bool { return os.Getenv(childEnv) != "" }

// childMain runs the downstream service or an instance, until its standard input ends.
func childMain() {
	backend.Child(childEnv, func(ctx context.Context, s settings) error {
		if s.Name == "" {
			return backend.Serve(ctx, downstream.New().Handler())
		}
		return serve(ctx, s)
	})
}

// The outage policies, each with a path of its own.
var policies = map[string]limithttp.Outage{
	"closed": limithttp.Closed,
	"open":   limithttp.Open,
}

// The events of an instance. Their text is the policy.
const (
	evOutage = "outage"
	evOver   = "outage is over"
)

// The headers of a response: the instance, when the request had arrived and had its permit, by
// hostclock, and whether it had none.
const (
	hInstance = "Instance"
	hArrived  = "Arrived"
	hAdmitted = "Admitted"
	hWithout  = "Without-Permit"
)

// instance is one of the three.
type instance struct {
	settings
	downstream downstream.Client
	without    atomic.Int64 // requests that run without a permit
}

// serve runs an instance until ctx ends.
func serve(ctx context.Context, set settings) error {
	s := &instance{settings: set, downstream: downstream.Client{URL: set.Downstream}}
	client, err := cluster.Dial(set.Endpoints)
	if err != nil {
		return err
	}
	defer client.Close()
	start, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	sess, err := concurrency.NewSession(start, client, set.Namespace, &concurrency.SessionOptions{TTL: set.TTL, Margin: set.Margin, Owner: set.Name})
	if err != nil {
		return err
	}
	defer func() {
		closing, stop := context.WithTimeout(context.Background(), 2*time.Second)
		defer stop()
		_ = sess.Close(closing)
	}()
	sem, err := newLimit(sess, set.Limit)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for name, policy := range policies {
		limited, err := limithttp.Middleware(concurrency.Single(sem), limithttp.Options{
			Key:      func(*http.Request) (string, bool) { return "search", true },
			Wait:     wait,
			Outage:   policy,
			Patience: patience,
			OnOutage: func(err error) {
				if err != nil {
					backend.Emit(evOutage, name)
				} else {
					backend.Emit(evOver, name)
				}
			},
		})
		if err != nil {
			return err
		}
		mux.Handle("POST /"+name, s.arrived(limited(http.HandlerFunc(s.search))))
	}
	mux.HandleFunc("GET /without", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.without.Load()) })
	return backend.Serve(ctx, mux)
}

// newLimit returns the limit that all instances share. What an operator has set is in force: see
// AdoptLimit.
func newLimit(sess *concurrency.Session, limit int) (*concurrency.Semaphore, error) {
	return concurrency.NewSemaphore(sess, "search", limit, &concurrency.SemaphoreOptions{AdoptLimit: true})
}

// arrived notes when a request arrived, in front of the limit.
func (s *instance) arrived(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(hInstance, s.Name)
		w.Header().Set(hArrived, strconv.FormatInt(hostclock.Now(), 10))
		next.ServeHTTP(w, r)
	})
}

// search is the handler behind the limit. The call of the downstream service ends with the context,
// which ends when the permit is lost, and carries the permit's deadline: if this process is paused
// just before it calls, the service refuses the call.
func (s *instance) search(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(hAdmitted, strconv.FormatInt(hostclock.Now(), 10))
	var until time.Time
	if p, ok := limithttp.FromContext(r.Context()); ok {
		until = p.Deadline()
	} else {
		s.without.Add(1)
		defer s.without.Add(-1)
		w.Header().Set(hWithout, "yes")
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
