package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// The page shows what the shop does, and all of it ends when it is interrupted.
func TestShop(t *testing.T) {
	etcd := embedtest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- shop(ctx, cluster.At(etcd.Endpoints()...), etcd.Client(), lis) }()
	for page, texts := range map[string][]string{
		"":                            {"semaphore/charge", "limiter/api", "mutex/report", "election/shard-7"},
		"queue?name=semaphore/charge": {"behind"},
		"jobs":                        {"invoices", "cleanup"},
		"stores":                      {"orders"},
		"sessions":                    {"web-1", "web-4", "operator"},
	} {
		for _, text := range texts {
			shows(ctx, t, "http://"+lis.Addr().String()+"/"+page, text)
		}
	}
	for !triggered(ctx, t, "http://"+lis.Addr().String()+"/action") { // it may run just then
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// shows reads a page until it has a text.
func shows(ctx context.Context, t *testing.T, url, text string) {
	t.Helper()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%s has no %q: %v", url, text, err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil && strings.Contains(string(body), text) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// triggered has a job run by the form of its page, and reports whether a process has started it.
func triggered(ctx context.Context, t *testing.T, url string) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("do=trigger&name=cleanup&confirm=cleanup&reason=now"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := http.DefaultClient.Do(r) // it shows the page of the job
	if err != nil {
		t.Fatalf("no process starts a job by hand: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return err == nil && strings.Contains(string(body), "The job was started.")
}
