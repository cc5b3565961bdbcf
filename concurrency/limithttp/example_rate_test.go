package limithttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest"
)

// ratedAPI begins at most 100 requests per second in the whole fleet. The rate is that of one client,
// so the others get 429 rather than 503.
func ratedAPI(sess *concurrency.Session, api http.Handler) (http.Handler, error) {
	rate, err := concurrency.NewRateLimiter(sess, "partner", concurrency.Rate{PerSecond: 100, Burst: 20}, nil)
	if err != nil {
		return nil, err
	}
	limited, err := limithttp.Middleware(nil, limithttp.Options{ // nil: no permits
		Rate: rate,
		Wait: 2 * time.Second,
		OnProblem: func(w http.ResponseWriter, r *http.Request, p limithttp.Problem) {
			if p.Code == limithttp.CodeRateExceeded {
				p.Status = http.StatusTooManyRequests
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(p.Status)
			_ = json.NewEncoder(w).Encode(p)
		},
	})
	if err != nil {
		return nil, err
	}
	return limited(api), nil
}

// A rate for the whole fleet.
func Example_rate() {
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
	h, err := ratedAPI(sess, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "done")
	}))
	if err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/report", nil))
	fmt.Println(w.Code, w.Body)
	// Output:
	// 200 done
}
