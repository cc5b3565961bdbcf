package backend

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
)

// Proxy is a reverse proxy. It sends each request to the next server in turn, except for those that
// are known to be dead. It does not retry: a request whose server dies gets 502.
type Proxy struct {
	leastBusy bool
	reverse   *httputil.ReverseProxy

	front  *http.Server  // nil until Listen
	served chan struct{} // closed when front has ended

	mu     sync.Mutex
	places []place
	next   int
}

// place is where a server is, if one is there.
type place struct {
	host string // empty for a dead one
	busy int    // requests in progress
}

// NewProxy returns a proxy with n places for servers, all empty. With leastBusy it chooses
// among the servers with the fewest requests in progress.
func NewProxy(n int, leastBusy bool) *Proxy {
	p := &Proxy{leastBusy: leastBusy, places: make([]place, n)}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: host(r.In.Context())}) },
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

type hostKey struct{}

func host(ctx context.Context) string { return ctx.Value(hostKey{}).(string) }

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i, host := p.pick()
	defer p.done(i)
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), hostKey{}, host)))
}

// Name implements Front.
func (p *Proxy) Name() string { return "" }

// Sockets implements Front.
func (p *Proxy) Sockets() string { return "" }

// Set implements Front. It returns no error.
func (p *Proxy) Set(i int, url string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places[i].host = strings.TrimPrefix(url, "http://")
	return nil
}

// pick chooses a server for a request.
func (p *Proxy) pick() (i int, host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := -1
	for n := range p.places {
		i = (p.next + n) % len(p.places)
		if p.places[i].host == "" {
			continue
		}
		if best < 0 || p.leastBusy && p.places[i].busy < p.places[best].busy {
			best = i
		}
	}
	if best < 0 {
		return -1, "127.0.0.1:1" // no server listens there
	}
	p.next = (best + 1) % len(p.places)
	p.places[best].busy++
	return best, p.places[best].host
}

func (p *Proxy) done(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i >= 0 {
		p.places[i].busy--
	}
}

// Listen implements Front.
func (p *Proxy) Listen() (url string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	p.front, p.served = &http.Server{Handler: p}, make(chan struct{})
	go func() {
		defer close(p.served)
		_ = p.front.Serve(ln)
	}()
	return "http://" + ln.Addr().String(), nil
}

// Close implements Front.
func (p *Proxy) Close() {
	if p.front != nil {
		_ = p.front.Close()
		<-p.served
	}
}
