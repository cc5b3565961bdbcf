package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// payments returns a server's routes. By default another server takes over from a dead one.
func payments(sess *concurrency.Session, cards *provider, charged func()) http.Handler {
	st := must(idempotency.NewStore(sess, "payments", &idempotency.Options{SingleTenant: true}))
	once := must(idemhttp.Middleware(st, &idemhttp.Options{Wait: time.Minute}))
	r := chi.NewRouter()
	r.With(once).Post("/payments", func(w http.ResponseWriter, r *http.Request) {
		a, _ := idempotency.FromContext(r.Context())
		receipt := cards.charge(a.ChildKey("charge")) // the same key in each attempt at this payment
		charged()
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, receipt)
	})
	return r
}

// A payment on chi whose server dies between the charge and the record of it: the client
// sends the payment again, another server takes it over, and the card is charged once.
func Example_chi() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := openShop(ctx)
	defer s.stop()
	cards := &provider{charges: map[string]string{}}
	charged, dead, lost := make(chan struct{}), make(chan struct{}), make(chan int)
	first := payments(s.first, cards, func() { s.network.Cut(); close(charged); <-dead })
	second := payments(s.second, cards, func() {})

	go func() { status, _ := pay(ctx, first); lost <- status }()
	<-charged
	fmt.Println(pay(ctx, second))
	fmt.Println("the provider was called", cards.calls, "times and has charged", len(cards.charges))

	s.network.Heal() // in this program alone: the first server comes back, and does not answer with 201
	close(dead)
	fmt.Println(<-lost)
	// Output:
	// 201 receipt 1
	// the provider was called 2 times and has charged 1
	// 409
}
