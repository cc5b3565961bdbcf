package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/demos/internal/downstream"
	"github.com/etcdkit/etcdkit/demos/internal/waits"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// childEnv makes the program a child. It holds the settings below.
const childEnv = "FAIR_USERS_CHILD"

// settings are the settings of a child.
type settings struct {
	program.Place
	Name  string // of a gateway; empty for the model
	Model string // its URL
	TTL   time.Duration

	Sockets string // where gateways listen as well: see backend.Front
}

// childMain runs the model or a gateway, until its standard input ends.
func childMain(ctx context.Context, s settings) error {
	if s.Name == "" {
		return backend.Serve(ctx, "", downstream.New().Handler())
	}
	return serve(ctx, s)
}

// The events of a gateway. Their text is the user or the flow.
const (
	evTooLong  = "held too long" // a permit ended after MaxHold
	evReleased = "released"      // a flow was released by another process
)

// gateway is one of the three.
type gateway struct {
	settings
	model   downstream.Client
	limiter *concurrency.KeyedLimiter
	stop    context.Context // ends with the process

	mu    sync.Mutex
	flows map[string]*concurrency.Permit // that have begun here, so that they stay reachable
}

// newLimiter returns the limiter of all gateways.
func newLimiter(sess *concurrency.Session) (*concurrency.KeyedLimiter, error) {
	return concurrency.NewKeyedLimiter(sess, "model", perUser, &concurrency.KeyedLimiterOptions{Total: total})
}

// The two ways, which are the paths of the requests.
const (
	oneQueue = "one-queue"
	byUser   = "by-user"
)

// serve runs a gateway until ctx ends.
func serve(ctx context.Context, set settings) error {
	g := &gateway{settings: set, model: downstream.Client{URL: set.Model}, stop: ctx, flows: map[string]*concurrency.Permit{}}
	sess, _, shut, err := backend.Session(ctx, set.Place, &concurrency.SessionOptions{TTL: set.TTL, Owner: set.Name})
	if err != nil {
		return err
	}
	defer shut()
	if g.limiter, err = newLimiter(sess); err != nil {
		return err
	}
	all, err := concurrency.NewSemaphore(sess, "all", total, nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for _, way := range []struct {
		path    string
		limiter concurrency.Limiter
		each    func(*http.Request) []concurrency.AcquireOption
		h       http.HandlerFunc
	}{
		{oneQueue, concurrency.Single(all), nil, g.ask},
		{byUser, g.limiter, nil, g.ask},
		{"stuck", g.limiter, func(*http.Request) []concurrency.AcquireOption {
			return []concurrency.AcquireOption{concurrency.MaxHold(maxHold)}
		}, g.stuck},
	} {
		limited, err := limithttp.Middleware(way.limiter, limithttp.Options{Key: user, Wait: time.Minute, Each: way.each})
		if err != nil {
			return err
		}
		mux.Handle("POST /"+way.path+"/{user}", waits.Arrived(g.Name, limited(way.h)))
	}
	mux.HandleFunc("POST /flows/{user}/{flow}", g.begin)
	mux.HandleFunc("POST /flows/{user}/{flow}/end", g.end)
	return backend.Serve(ctx, set.Sockets, mux)
}

// user returns the key of a request. A service of yours takes it from what it has authenticated.
func user(r *http.Request) (key string, limited bool) { return r.PathValue("user"), true }

// ask asks the model, under a permit.
func (g *gateway) ask(w http.ResponseWriter, r *http.Request) {
	until, _ := waits.Admitted(w, r)
	err := g.model.Work(r.Context(), r.PathValue("user"), work, until)
	switch {
	case r.Context().Err() != nil: // the client has left, or the middleware answers
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	default:
		fmt.Fprintln(w, "answered")
	}
}

// stuck never returns while the process serves. Its permit ends after MaxHold.
func (g *gateway) stuck(w http.ResponseWriter, r *http.Request) {
	waits.Admitted(w, r)
	<-r.Context().Done()
	if errors.Is(context.Cause(r.Context()), concurrency.ErrTooLong) {
		backend.Emit(evTooLong, r.PathValue("user"))
	}
	<-g.stop.Done() // a handler that ignores its context
}

// begin begins a flow of a user, which holds a permit until it is ended by its ID, in any process.
func (g *gateway) begin(w http.ResponseWriter, r *http.Request) {
	flow := r.PathValue("flow")
	opts := []concurrency.AcquireOption{concurrency.ID(flow), concurrency.Wait(10 * time.Second)}
	if r.URL.Query().Has("takeover") {
		opts = append(opts, concurrency.TakeOver())
	}
	p, err := g.limiter.Key(r.PathValue("user")).Acquire(r.Context(), opts...)
	switch {
	case errors.Is(err, concurrency.ErrHeld):
		http.Error(w, err.Error(), http.StatusConflict)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	g.mu.Lock()
	g.flows[flow] = p
	g.mu.Unlock()
	context.AfterFunc(p.Context(), func() {
		if errors.Is(context.Cause(p.Context()), concurrency.ErrReleased) {
			backend.Emit(evReleased, flow)
		}
	})
	fmt.Fprintln(w, "begun")
}

// end ends a flow that may have begun in another process.
func (g *gateway) end(w http.ResponseWriter, r *http.Request) {
	err := g.limiter.Key(r.PathValue("user")).ReleaseID(r.Context(), r.PathValue("flow"))
	switch {
	case errors.Is(err, concurrency.ErrNotHeld):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ended")
	}
}
