package limithttp_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest"
)

type tenantKey struct{}

// Each tenant runs at most one report at a time, in all processes together; health checks are not
// limited.
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
	lim, err := concurrency.NewKeyedLimiter(sess, "reports", 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	limited, err := limithttp.Middleware(lim, limithttp.Options{
		Key: func(r *http.Request) (string, bool) {
			tenant, _ := r.Context().Value(tenantKey{}).(string)
			return tenant, r.URL.Path != "/healthz" // without a tenant: 500, an error of the program
		},
		ReportError: func(r *http.Request, err error) { log.Print(r.URL, ": ", err) },
	})
	if err != nil {
		log.Fatal(err)
	}

	var h http.Handler
	call := func(tenant string) {
		r := httptest.NewRequest(http.MethodGet, "/report", nil)
		if tenant != "" { // your authentication, in front of the middleware
			r = r.WithContext(context.WithValue(ctx, tenantKey{}, tenant))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%q: %d %q\n", tenant, w.Code, w.Header().Get("RateLimit-Policy"))
	}
	nested := false
	h = limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !nested { // while the first report is in progress
			nested = true
			call("acme")
			call("globex")
			call("")
		}
	}))
	call("acme")
	// Output:
	// "acme": 429 "\"concurrency\";q=1;qu=\"concurrent-requests\""
	// "globex": 200 ""
	// "": 500 ""
	// "acme": 200 ""
}
