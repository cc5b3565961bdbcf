package main

import (
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// wait is how long a call waits for a permit and a token, and starts how much longer in a process that has just begun: its
// first token takes up to a second, whatever wait is.
const (
	wait   = 2 * time.Second
	starts = time.Second
)

// limited returns the client for the partner, one for all calls. It has no Timeout, which would end a request
// while the partner works on it: see call. The numbers of limit and rate count until etcd has some. Later ones in the code
// change nothing, but these do, for all processes at once:
//
//	etcdkit limit -N quickstart semaphore/partner 6
//	etcdkit limit -N quickstart rate/partner 30 --burst 5
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
		Wait: wait, // then the error is limithttp.ErrNotSent
		// 4 of the whole fleet wait, and all others are refused at once: few calls use their Wait. If a process crashes,
		// what it held and what it had waiting count until its lease ends, 15 s later. To have more calls wait, leave
		// MaxWaiters out and bound the calls of each process in front, as with a semaphore of golang.org/x/sync: a
		// call can then wait for both, one after the other.
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
