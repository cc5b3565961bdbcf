package integration

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// What the examples have beside the libraries that they show.

// processes starts an etcd, and two processes played by two sessions.
func processes(ctx context.Context, use func(*concurrency.Session)) (stop func()) {
	etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New
	if err != nil {
		log.Fatal(err)
	}
	var stops []func()
	for range 2 {
		sess, err := concurrency.NewSession(ctx, etcd.Client(), "billing", nil) // one per process
		if err != nil {
			log.Fatal(err)
		}
		stops = append(stops, func() { _ = sess.Close(ctx) })
		use(sess)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
		_ = etcd.Close()
	}
}

// failed is for Options.Done: the cron libraries drop what a call returns. In a program, count
// and alert.
func failed(res schedlock.Result, err error) {
	if err != nil && !errors.Is(err, schedlock.ErrClosed) {
		log.Printf("job %q: %v: %v", res.Job, res.Outcome, err)
	}
}

// pause pauses the job, and prints its history: the same in every process.
func pause(ctx context.Context, lk *schedlock.Locker, job string) {
	if err := lk.Pause(ctx, job, "the database is being moved"); err != nil {
		log.Fatal(err)
	}
	history, err := lk.History(ctx, job)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the run before the last one:", history[1].State)
	st, err := lk.Status(ctx, job)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("paused:", st.Paused.Reason)
}

// provider charges cards, each key once, as Stripe does: it plays another company.
type provider struct {
	mu      sync.Mutex
	calls   int
	charges map[string]string
}

func (p *provider) charge(key string) (receipt string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.charges[key] == "" {
		p.charges[key] = fmt.Sprintf("receipt %d", len(p.charges)+1)
	}
	return p.charges[key]
}

// pay sends one payment to a server, with the key of its client.
func pay(ctx context.Context, server http.Handler) (status int, body string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments", strings.NewReader(`{"cents":100}`))
	r.Header.Set("Idempotency-Key", `"0f8fad5b-d9cb-469f-a165-70867728950e"`)
	server.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// shop has the sessions of two servers, and the network of the first.
type shop struct {
	first, second *concurrency.Session
	network       *embedtest.Client
	stop          func()
}

func openShop(ctx context.Context) shop {
	etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New
	if err != nil {
		log.Fatal(err)
	}
	network, err := etcd.Dial(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	open := func(client *clientv3.Client) *concurrency.Session {
		sess, err := concurrency.NewSession(ctx, client, "shop", &concurrency.SessionOptions{
			TTL: 2 * time.Second, Margin: time.Second, // here, to wait less for a dead process
		})
		if err != nil {
			log.Fatal(err)
		}
		return sess
	}
	s := shop{first: open(network.Client), second: open(etcd.Client()), network: network}
	s.stop = func() {
		_ = s.first.Close(ctx)
		_ = s.second.Close(ctx)
		_ = etcd.Close()
	}
	return s
}

// must returns v, or ends the program with err.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
