package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/promkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// workerEnv is the environment variable that makes the program a process of the fleet: its value is settings as JSON.
const workerEnv = "NIGHT_WORKER"

// settings are those of a process of the fleet.
type settings struct {
	Etcd      cluster.Etcd
	Namespace string
	Node      string
	Part      int           // see fleetOf
	Files     string        // a folder with a file for each job, which its runs read
	Period    time.Duration // of the jobs: a night
	Ahead     time.Duration // by how much its clock is wrong
}

// order is a fault that a process causes in itself.
type order struct{ Do, Name string }

// answer is what a process reports of an order; that to the order "" says that it works, and where its metrics are.
type answer struct {
	Did     string
	Error   string
	Metrics string // host and port
}

// worker is a process of the fleet.
type worker struct {
	settings
	sess *concurrency.Session
	jobs *schedlock.Locker
	work sync.WaitGroup

	mu     sync.Mutex
	leave  map[string]func() // ends the work on a name
	stores map[string]*idempotency.Store
}

// ttl is that of the sessions: the default.
const ttl = 15 * time.Second

// workerMain is the main function of a process of the fleet. It returns at the end of in.
func workerMain(raw string, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent too, which closes our input
	w := &worker{leave: map[string]func(){}, stores: map[string]*idempotency.Store{}}
	if err := json.Unmarshal([]byte(raw), &w.settings); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hooks, at, err := serveMetrics()
	if err != nil {
		return err
	}
	stop, err := w.open(ctx, hooks)
	if err != nil {
		return err
	}
	defer stop()
	defer w.work.Wait()
	defer cancel()
	for _, i := range fleetOf(w.Part) {
		if i.at(w.Node) {
			if err := w.use(ctx, i); err != nil {
				return fmt.Errorf("%s: %w", i, err)
			}
		}
	}
	child.WriteJSON(out, answer{Metrics: at})
	for dec := json.NewDecoder(in); ; {
		var o order
		if dec.Decode(&o) != nil {
			return nil
		}
		a := answer{Did: o.Do}
		if err := w.obey(ctx, o); err != nil {
			a.Error = err.Error()
		}
		child.WriteJSON(out, a)
	}
}

// serveMetrics serves what the session reports, until the process ends. Of the buckets it has those that the alerts
// need, and some between.
func serveMetrics() (hooks observe.Hooks, at string, err error) {
	reg := prometheus.NewRegistry()
	if hooks, err = promkit.New(reg, &promkit.Options{Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 30}}); err != nil {
		return hooks, "", err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return hooks, "", err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(lis) }()
	return hooks, lis.Addr().String(), nil
}

// open starts the session.
func (w *worker) open(ctx context.Context, hooks observe.Hooks) (stop func(), err error) {
	client, err := w.Etcd.Dial()
	if err != nil {
		return nil, err
	}
	opening, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	w.sess, err = concurrency.NewSession(opening, client, w.Namespace, &concurrency.SessionOptions{Owner: w.Node, TTL: ttl, Hooks: []observe.Hooks{hooks}})
	if err == nil {
		w.jobs, err = schedlock.New(w.sess, &schedlock.Options{Now: func() time.Time { return time.Now().Add(w.Ahead) }})
	}
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return func() {
		closing, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = w.sess.Close(closing)
		_ = client.Close()
	}, nil
}

// obey causes a fault.
func (w *worker) obey(ctx context.Context, o order) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	leave := w.leave[o.Name]
	switch o.Do {
	case "leave": // the process does not use the name any more
		if leave == nil {
			return errors.New("this process does not use it")
		}
		leave()
	case "hold": // a holder of all permits does not return
		return w.hold(ctx, o.Name)
	case "flood": // calls for a rate, far beyond it
		return w.flood(ctx, o.Name)
	case "begin": // requests that do not return
		return w.begin(ctx, o.Name)
	case "repeat": // a client's next tries of these requests
		w.repeat(ctx, o.Name)
	default:
		return errors.New("no such order")
	}
	return nil
}

// hold acquires all permits of a semaphore with a narrow limit, and holds them until they are taken from it.
func (w *worker) hold(ctx context.Context, name string) error {
	sem, err := concurrency.NewSemaphore(w.sess, name, narrow, &concurrency.SemaphoreOptions{AdoptLimit: true})
	if err != nil {
		return err
	}
	p, err := sem.Acquire(ctx, concurrency.Weight(narrow), concurrency.Note("full export of all customers"))
	if err != nil {
		return err
	}
	w.work.Go(func() {
		select {
		case <-p.Context().Done():
		case <-ctx.Done():
		}
		_ = p.Release(context.WithoutCancel(ctx))
	})
	return nil
}

// flood calls for a rate, twenty times a second.
func (w *worker) flood(ctx context.Context, name string) error {
	rate, err := concurrency.NewRateLimiter(w.sess, name, mails, &concurrency.RateLimiterOptions{AdoptRate: true})
	if err != nil {
		return err
	}
	w.loop(ctx, 50*time.Millisecond, func(int) { _ = rate.Allow() })
	return nil
}

// lostKeys are the requests of begin and repeat.
var lostKeys = []idempotency.Key{{Scope: "acme", Op: "POST /payments", ID: "night-1"}, {Scope: "acme", Op: "POST /payments", ID: "night-2"}}

// begin begins requests, and reports no outcome.
func (w *worker) begin(ctx context.Context, store string) error {
	for _, key := range lostKeys {
		if _, _, err := w.stores[store].Begin(ctx, key, key.ID, idempotency.Note("invoice of "+key.ID)); err != nil {
			return err
		}
	}
	return nil
}

// repeat sends the same requests again and again.
func (w *worker) repeat(ctx context.Context, store string) {
	st := w.stores[store]
	w.loop(ctx, 2*time.Second, func(n int) {
		key := lostKeys[n%len(lostKeys)]
		_, _ = idempotency.Do(ctx, st, key, key.ID, func(context.Context, *idempotency.Attempt) (string, error) { return "paid", nil })
	})
}
