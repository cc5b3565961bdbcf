package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/metrics"
	"github.com/etcdkit/etcdkit/schedlock"
)

// quota is that of the embedded etcd.
const quota = 128 << 20

// night is a fleet at work, and what an operator sees of it.
type night struct {
	names  []item
	etcd   cluster.Etcd
	own    bool // it is embedded
	client *clientv3.Client
	space  string // the namespace
	sess   *concurrency.Session
	fleet  *services
	dir    string // for the rules, the data of Prometheus and the answers
	files  string // of the jobs
	verb   string // the command etcdkit
	seen   *watcher

	console, metrics, services string // their addresses

	stops []func()
}

// begin starts all of a night. stop ends it.
func begin(ctx context.Context, c config) (n *night, err error) {
	n = &night{names: fleetOf(c.part), space: "shop", verb: c.etcdkit}
	defer func() {
		if err != nil {
			n.stop()
		}
	}()
	if n.dir, err = os.MkdirTemp("", "night-"); err != nil {
		return n, err
	}
	n.stops = append(n.stops, func() {
		if !c.keep {
			_ = os.RemoveAll(n.dir)
		}
	})
	if err := n.connect(ctx, c); err != nil {
		return n, err
	}
	if n.sess, err = concurrency.NewSession(ctx, n.client, n.space, &concurrency.SessionOptions{Owner: "operator"}); err != nil {
		return n, err
	}
	n.stops = append(n.stops, func() {
		closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = n.sess.Close(closing)
		if !n.own { // it stays: nothing of the night does
			_, _ = n.client.Delete(closing, n.sess.NamespacePrefix(), clientv3.WithPrefix())
		}
	})
	page, err := metrics.Listen("127.0.0.1:0", &address{&n.metrics})
	if err != nil {
		return n, err
	}
	n.stops = append(n.stops, page.Close)
	if err := page.Publish(n.etcd, n.space); err != nil {
		return n, err
	}
	if err := n.serve(); err != nil {
		return n, err
	}
	if err := n.startFleet(ctx, c); err != nil {
		return n, err
	}
	if c.blind {
		return n, nil
	}
	watching, cancel := context.WithCancel(ctx)
	n.stops = append(n.stops, func() {
		cancel()
		if n.seen != nil {
			<-n.seen.done
		}
	})
	n.seen, err = watch(watching, c.root, n.dir, n.metrics, strings.TrimSuffix(n.etcdURL(), "/"), c.minute)
	if errors.Is(err, errNoPrometheus) && !c.check {
		fmt.Fprintln(os.Stderr, "night: no alert is evaluated:", err)
		err = nil
	}
	return n, err
}

// connect starts an etcd, unless there is a given one.
func (n *night) connect(ctx context.Context, c config) (err error) {
	if n.etcd = c.etcd; len(n.etcd.Endpoints) > 0 {
		n.space = "night-" + strings.ToLower(rand.Text()[:8])
		fmt.Fprintln(os.Stderr, "night: this etcd is not filled up: the fault of its quota is left out")
	} else {
		own, err := embedtest.New(ctx, &embedtest.Options{QuotaBytes: quota})
		if err != nil {
			return fmt.Errorf("start an embedded etcd: %w", err)
		}
		n.stops = append(n.stops, func() { _ = own.Close() })
		n.etcd, n.own = cluster.At(own.Endpoints()...), true
	}
	if n.client, err = n.etcd.Dial(); err != nil {
		return err
	}
	n.stops = append(n.stops, func() { _ = n.client.Close() })
	return nil
}

// etcdURL is where a member of etcd has its metrics.
func (n *night) etcdURL() string {
	at := n.etcd.Endpoints[0]
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	return at
}

// startFleet starts the processes, and waits until they work.
func (n *night) startFleet(ctx context.Context, c config) error {
	n.files = filepath.Join(n.dir, "files")
	if err := os.Mkdir(n.files, 0o700); err != nil {
		return err
	}
	for _, i := range n.names {
		if i.kind == "job" {
			if err := n.writeFile(i.name); err != nil {
				return err
			}
		}
	}
	n.fleet.targets = filepath.Join(n.dir, "targets.json")
	running, cancel := context.WithCancel(ctx)
	n.fleet.settings = settings{Etcd: n.etcd, Namespace: n.space, Part: c.part, Period: c.period, Files: n.files}
	n.fleet.start(running)
	n.stops = append(n.stops, func() {
		cancel()
		n.fleet.running.Wait()
	})
	if err := n.fleet.awaitAll(ctx); err != nil {
		return err
	}
	return n.awaitUse(ctx)
}

// awaitUse waits until each semaphore has a stored limit, and each job a run.
func (n *night) awaitUse(ctx context.Context) error {
	jobs, err := schedlock.New(n.sess, nil)
	if err != nil {
		return err
	}
	for _, i := range n.names {
		err := persist(ctx, 100*time.Millisecond, func() error {
			switch i.kind {
			case "semaphore":
				sem, err := concurrency.NewSemaphore(n.sess, i.name, i.limit, nil)
				if err != nil {
					return err
				}
				if st, err := sem.Status(ctx); err != nil || !st.Stored {
					return errors.Join(err, fmt.Errorf("%s has no limit", i))
				}
			case "job":
				if runs, err := jobs.History(ctx, i.name); err != nil || len(runs) == 0 {
					return errors.Join(err, fmt.Errorf("%s has no run", i))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes the file that the runs of a job read.
func (n *night) writeFile(job string) error {
	return os.WriteFile(filepath.Join(n.files, job), []byte("customers"), 0o600)
}

// serve serves the console, and the state of the processes.
func (n *night) serve() error {
	page, err := console.Handler(n.sess, &console.Options{Authorize: func(*http.Request, console.Action) error { return nil }})
	if err != nil {
		return err
	}
	n.fleet = newServices()
	for to, h := range map[*string]http.Handler{&n.console: page, &n.services: n.fleet} {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		*to = "http://" + lis.Addr().String()
		server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute}
		go func() { _ = server.Serve(lis) }()
		n.stops = append(n.stops, func() { _ = server.Close() })
	}
	return nil
}

// stop ends all of it, the latest part first.
func (n *night) stop() {
	for i := len(n.stops) - 1; i >= 0; i-- {
		n.stops[i]()
	}
}

// variables are those by which etcdkit and etcdctl reach etcd.
func (n *night) variables() (all []string) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, name+"="+value)
		}
	}
	add("ETCDCTL_ENDPOINTS", strings.Join(n.etcd.Endpoints, ","))
	add("ETCDCTL_CACERT", n.etcd.Cacert)
	add("ETCDCTL_CERT", n.etcd.Cert)
	add("ETCDCTL_KEY", n.etcd.Key)
	add("ETCDCTL_USER", n.etcd.User)
	add("ETCDCTL_PASSWORD", n.etcd.Password)
	add("ETCDKIT_NAMESPACE", n.space)
	return all
}

// command runs the command etcdkit, as an operator does, and returns what it prints.
func (n *night) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, n.verb, args...)
	cmd.Env = append(os.Environ(), n.variables()...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("etcdkit %s: %w: %s%s", strings.Join(args, " "), err, out, failure.String())
	}
	return string(out), nil
}

// page returns a page of the console as JSON.
func (n *night) page(ctx context.Context, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.console+"/"+path, nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Accept", "application/json")
	return answered(r)
}

// setLimit changes a limit by the console, as an operator did before the night.
func (n *night) setLimit(ctx context.Context, name, limit, reason string) error {
	form := url.Values{"do": {"set-limit"}, "name": {name}, "confirm": {name}, "value": {limit}, "reason": {reason}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.console+"/action", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	_, err = answered(r)
	return err
}

func answered(r *http.Request) (string, error) {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", r.URL, resp.Status, body)
	}
	return string(body), err
}

// address is a writer that keeps the URL of a line "metrics: URL".
type address struct{ to *string }

func (a *address) Write(line []byte) (int, error) {
	_, url, _ := strings.Cut(strings.TrimSpace(string(line)), ": ")
	*a.to = url
	return len(line), nil
}
