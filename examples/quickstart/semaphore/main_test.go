package main

import (
	"context"
	"errors"
	"log"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

func Example() {
	if err := run(context.Background(), ""); err != nil {
		log.Fatal(err)
	}
	// Output: 10 rendered, at most 3 at a time
}

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits as long as the program does: 5 s")
	}
	err := run(t.Context(), "127.0.0.1:1")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want an error that tells what cannot be reached", err)
	}
}
