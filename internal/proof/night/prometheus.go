package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/ports"
)

// scrape is how often Prometheus reads the metrics, and evaluates the rules.
const scrape = 2 * time.Second

// watcher is a Prometheus of the night's own.
type watcher struct {
	url  string
	done chan struct{} // closed at its end
}

// errNoPrometheus says how to get one.
var errNoPrometheus = errors.New("prometheus is not installed (Debian and Ubuntu: apt install prometheus; otherwise prometheus.io/download)")

// watch starts a Prometheus with the compressed rules. It ends with ctx. metrics and etcd are where it reads those of
// the fleet, and those of etcd.
func watch(ctx context.Context, root, dir, metrics, etcd string, minute time.Duration) (*watcher, error) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, errNoPrometheus
	}
	rules, err := writeRules(root, dir, minute)
	if err != nil {
		return nil, err
	}
	target := func(job, at string) string {
		u, err := url.Parse(at)
		if err != nil {
			return ""
		}
		return fmt.Sprintf("  - {job_name: %s, scheme: %s, honor_labels: true, tls_config: {insecure_skip_verify: true}, static_configs: [{targets: [%q]}]}\n", job, u.Scheme, u.Host)
	}
	config := fmt.Sprintf("global: {scrape_interval: %v, scrape_timeout: %v, evaluation_interval: %v}\nrule_files: [%s]\nscrape_configs:\n%s%s",
		scrape, scrape, scrape, strings.Join(rules, ", "), target("exporter", metrics), target("etcd", etcd)) +
		"  - {job_name: etcdkit, file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]}\n"
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	addr, release, err := ports.Reserve()
	if err != nil {
		return nil, err
	}
	release() // Prometheus takes it without SO_REUSEPORT
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		_ = log.Close()
		return nil, err
	}
	w := &watcher{url: "http://" + addr, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the log says why it has ended
		_ = log.Close()
		close(w.done)
	}()
	for {
		if _, err = w.query(ctx, "vector(1)"); err == nil {
			return w, nil
		}
		select {
		case <-w.done:
			return nil, fmt.Errorf("prometheus has ended: see %s", log.Name())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// query returns the labels of the series that an expression has now.
func (w *watcher) query(ctx context.Context, expr string) (found []map[string]string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/api/v1/query?"+url.Values{"query": {expr}}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var body struct {
		Error string
		Data  struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("prometheus: %s: %s", expr, body.Error)
	}
	for _, one := range body.Data.Result {
		found = append(found, one.Metric)
	}
	return found, nil
}

// firing returns the alerts that fire, each with the name that it is about, if it has one.
func (w *watcher) firing(ctx context.Context) (map[string]bool, error) {
	all, err := w.query(ctx, `ALERTS{alertstate="firing"}`)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, labels := range all {
		found[strings.TrimSpace(labels["alertname"]+" "+labels["etcdkit_name"])] = true
	}
	return found, nil
}
