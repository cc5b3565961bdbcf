package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// proxy sends each request to the next server in turn, except for those that are known to be dead.
// It does not retry: a request whose server dies gets 502.
type proxy struct {
	reverse *httputil.ReverseProxy

	mu   sync.Mutex
	rows []string // addresses of the servers; empty for a dead one
	next int
}

func newProxy(rows int) *proxy {
	p := &proxy{rows: make([]string, rows)}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: p.pick()}) },
		Transport: &http.Transport{DisableKeepAlives: true},
		ErrorLog:  log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				w.WriteHeader(http.StatusBadGateway)
			}
		},
	}
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.reverse.ServeHTTP(w, r) }

// set sets the address of a row's server.
func (p *proxy) set(row int, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows[row] = addr
}

func (p *proxy) pick() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.rows {
		addr := p.rows[p.next]
		p.next = (p.next + 1) % len(p.rows)
		if addr != "" {
			return addr
		}
	}
	return "127.0.0.1:1" // no server listens there
}
