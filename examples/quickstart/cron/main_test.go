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
	// Output:
	// ran: 4
	// skipped: 4
	// in the history: 4
}

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	err := run(t.Context(), "127.0.0.1:1")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want an error that tells what cannot be reached", err)
	}
}
