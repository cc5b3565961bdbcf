package metrics

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/promkit"
)

// instance is the label that names the process that reports.
const instance = "instance"

// served is the key of a context's *Server.
type served struct{}

// In returns a context with the server, for Hooks.
func In(ctx context.Context, s *Server) context.Context { return context.WithValue(ctx, served{}, s) }

// Hooks returns the hooks of a session by which the server of ctx publishes what the session reports, with its name as
// the label instance. Without a name, the session is that of the scraped process. There are none if the server is off.
func Hooks(ctx context.Context, name string) ([]observe.Hooks, error) {
	s, _ := ctx.Value(served{}).(*Server)
	if s == nil || s.server == nil {
		return nil, nil
	}
	if name == "" { // Prometheus names it
		return hooks(s.registry)
	}
	return hooks(prometheus.WrapRegistererWith(prometheus.Labels{instance: name}, s.registry))
}

func hooks(reg prometheus.Registerer) ([]observe.Hooks, error) {
	h, err := promkit.New(reg, nil)
	if err != nil {
		return nil, err
	}
	return []observe.Hooks{h}, nil
}

// children are the child processes that have joined a server.
type children struct {
	token  string // that a child needs to join
	client *http.Client

	mu sync.Mutex
	at map[string]string // URLs, by the names of the processes
}

func newChildren() *children {
	return &children{token: rand.Text(), at: map[string]string{}, client: &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// patience is how long a scrape waits for a child, which may be paused.
const patience = 500 * time.Millisecond

// ServeHTTP has a child join.
func (c *children) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at[r.FormValue("name")] = r.FormValue("url")
}

// Children returns where child processes join the server, for Join; "" if it is off.
func (s *Server) Children() string {
	if s.server == nil {
		return ""
	}
	return strings.TrimSuffix(s.url, "/metrics") + "/children/" + s.children.token
}

// Join has the server of the parent process publish what the sessions of this process report, by the hooks that it
// returns. children is what Children returned there; if it is "", there are no hooks. leave ends that.
func Join(children, name string) (all []observe.Hooks, leave func(), err error) {
	if children == "" {
		return nil, func() {}, nil
	}
	reg := prometheus.NewRegistry()
	if all, err = hooks(reg); err != nil {
		return nil, nil, err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := &http.Server{Handler: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	leave = func() {
		_ = server.Close()
		serving.Wait()
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.PostForm(children, url.Values{"name": {name}, "url": {"http://" + lis.Addr().String()}})
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
	}
	if err != nil {
		leave()
		return nil, nil, fmt.Errorf("join the metrics of the parent process: %w", err)
	}
	return all, leave, nil
}

// Gather returns the metrics of all children. Those that do not answer, since they were killed or are paused, are left
// out.
func (c *children) Gather() ([]*dto.MetricFamily, error) {
	c.mu.Lock()
	at := maps.Clone(c.at)
	c.mu.Unlock()
	var mu sync.Mutex
	var asking sync.WaitGroup
	all := map[string]*dto.MetricFamily{}
	for name, url := range at {
		asking.Go(func() {
			found, err := c.scrape(url)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, f := range found {
				label := instance
				for _, m := range f.Metric {
					m.Label = append(m.Label, &dto.LabelPair{Name: &label, Value: &name})
				}
				if before := all[f.GetName()]; before != nil {
					before.Metric = append(before.Metric, f.Metric...)
				} else {
					all[f.GetName()] = f
				}
			}
		})
	}
	asking.Wait()
	return slices.Collect(maps.Values(all)), nil
}

// scrape returns the metrics of one child.
func (c *children) scrape(url string) (found []*dto.MetricFamily, err error) {
	req, err := http.NewRequest(http.MethodGet, url, nil) //nolint:noctx // the client has a timeout
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	for body := bufio.NewReader(resp.Body); ; {
		f := new(dto.MetricFamily)
		switch err := protodelim.UnmarshalFrom(body, f); {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, err
		}
		found = append(found, f)
	}
}
