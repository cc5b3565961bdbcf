package limithttp_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest"
)

// limitedAPI lets each tenant have 5 requests at a time in the whole fleet, and all of them 200.
func limitedAPI(sess *concurrency.Session, api http.Handler) (http.Handler, error) {
	lim, err := concurrency.NewKeyedLimiter(sess, "api", 5, &concurrency.KeyedLimiterOptions{Total: 200, AdoptLimit: true})
	if err != nil {
		return nil, err
	}
	limited, err := limithttp.Middleware(lim, limithttp.Options{
		Key: func(r *http.Request) (string, bool) {
			tenant, _ := r.Context().Value(tenantKey{}).(string)
			return tenant, r.URL.Path != "/healthz" // without a tenant: 500, an error of the program
		},
		Wait: 2 * time.Second, // then 429, or 503 if the total is full
		// In an outage for each request: count them, and log a sample.
		ReportError: func(r *http.Request, err error) { log.Print(r.URL.Path, ": ", err) },
	})
	if err != nil {
		return nil, err
	}
	return limited(api), nil // behind the authentication
}

// A limit for each tenant and one for all: the quick start of docs/limits.md.
func Example() {
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
	h, err := limitedAPI(sess, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, limited := limithttp.FromContext(r.Context())
		fmt.Fprintln(w, "under a permit:", limited)
	}))
	if err != nil {
		log.Fatal(err)
	}
	for _, path := range []string{"/report", "/healthz"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil).WithContext(context.WithValue(ctx, tenantKey{}, "acme")))
		fmt.Print(w.Code, " ", w.Body)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/report", nil)) // without a tenant
	fmt.Println(w.Code)
	// Output:
	// 200 under a permit: true
	// 200 under a permit: false
	// 500
}
