package main

import (
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// limited returns the client for the partner, one for all calls. It has no Timeout, which would end a request
// while the partner works on it: see call. Operators may change limit and rate.
func limited(sess *concurrency.Session) (*http.Client, error) {
	sem, err := concurrency.NewSemaphore(sess, "partner", 8, &concurrency.SemaphoreOptions{AdoptLimit: true})
	if err != nil {
		return nil, err
	}
	quota := concurrency.Rate{PerSecond: 40, Burst: 10} // 50 in any second: the burst counts as well
	rate, err := concurrency.NewRateLimiter(sess, "partner", quota, &concurrency.RateLimiterOptions{AdoptRate: true})
	if err != nil {
		return nil, err
	}
	transport, err := limithttp.Transport(concurrency.Single(sem), limithttp.Options{
		Key:  func(*http.Request) (string, bool) { return "partner", true }, // all requests, under one limit
		Rate: rate,
		Wait: 2 * time.Second, // then a *concurrency.FullError or *RateExceededError, and nothing was sent
		// Of the fleet, and fewer than the limit: if a process crashes, those that it has waiting are granted permits
		// until its lease ends, 15 s later.
		MaxWaiters:  4,
		ReportError: sampled(),
	}, nil)
	return &http.Client{Transport: transport}, err
}

// sampled returns what logs one error in each second: in an outage of etcd each request has one.
func sampled() func(*http.Request, error) {
	var last atomic.Int64
	return func(r *http.Request, err error) {
		if now := time.Now().Unix(); last.Swap(now) != now {
			log.Print(r.URL, ": ", err)
		}
	}
}
