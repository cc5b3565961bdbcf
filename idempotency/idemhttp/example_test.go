package idemhttp_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

type tenantKey struct{}

// A payment that is sent twice is charged once. Each tenant has keys of its own, and the bank
// gets a key that is the same in all attempts.
func ExampleMiddleware() {
	ctx := context.Background()
	etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	sess, err := concurrency.NewSession(ctx, etcd.Client(), "shop", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)
	store, err := idempotency.NewStore(sess, "payments", nil)
	if err != nil {
		log.Fatal(err)
	}
	once, err := idemhttp.Middleware(store, &idemhttp.Options{
		Scope: func(r *http.Request) string { return r.Context().Value(tenantKey{}).(string) },
		Docs:  "https://shop.example/idempotency",
	})
	if err != nil {
		log.Fatal(err)
	}
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempt, _ := idempotency.FromContext(r.Context())
		fmt.Println("charged, attempt", attempt.Attempt())
		_ = attempt.ChildKey("bank") // for the call to the bank
		w.WriteHeader(http.StatusCreated)
	})
	authenticated := func(next http.Handler) http.Handler { // stands for yours
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, "acme")))
		})
	}
	h := authenticated(once(pay))

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"cents":100}`))
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// charged, attempt 1
	// 201 replayed: false
	// 201 replayed: true
}
