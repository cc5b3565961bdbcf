package integration

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// provider charges cards, each key once, as Stripe does: it stands for another company.
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

// payments is a server: its routes, on its own session.
func payments(ctx context.Context, client *clientv3.Client, cards *provider, charged func()) (h http.Handler, stop func()) {
	sess, err := concurrency.NewSession(ctx, client, "shop", &concurrency.SessionOptions{
		TTL: 2 * time.Second, Margin: time.Second, // here, to wait less for a dead process
	})
	if err != nil {
		log.Fatal(err)
	}
	st, err := idempotency.NewStore(sess, "payments", &idempotency.Options{SingleTenant: true}) // Orphan is TakeOver
	if err != nil {
		log.Fatal(err)
	}
	r := chi.NewRouter()
	r.With(idemhttp.Middleware(st, &idemhttp.Options{Wait: time.Minute})).Post("/payments", func(w http.ResponseWriter, r *http.Request) {
		a, _ := idempotency.FromContext(r.Context())
		receipt := cards.charge(a.ChildKey("charge")) // the same key in each attempt at this payment
		charged()
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, receipt)
	})
	return r, func() { _ = sess.Close(ctx) }
}

// A payment on chi whose server dies between the charge and the record of it: the client
// sends the payment again, another server takes it over, and the card is charged once.
func Example_chi() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	network, err := etcd.Dial(ctx) // of the first server
	if err != nil {
		log.Fatal(err)
	}

	cards := &provider{charges: map[string]string{}}
	dead := make(chan struct{})
	first, stopFirst := payments(ctx, network.Client, cards, func() { network.Cut(); <-dead })
	second, stopSecond := payments(ctx, etcd.Client(), cards, func() {})
	defer stopSecond()

	send := func(server http.Handler) (status int, body string) { // the client sends its payment, with its key
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments", strings.NewReader(`{"cents":100}`))
		r.Header.Set("Idempotency-Key", `"0f8fad5b-d9cb-469f-a165-70867728950e"`)
		server.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	lost := make(chan int)
	go func() { status, _ := send(first); lost <- status }()
	for cards.called() < 1 { // until the card is charged
		time.Sleep(time.Millisecond)
	}
	fmt.Println(send(second))
	fmt.Println("the provider was called", cards.called(), "times and has charged", len(cards.charges))

	network.Heal() // in this program alone: the first server comes back, and does not answer with 201
	close(dead)
	fmt.Println(<-lost)
	stopFirst()
	// Output:
	// 201 receipt 1
	// the provider was called 2 times and has charged 1
	// 409
}

func (p *provider) called() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}
