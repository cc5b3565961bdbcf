package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// Two processes call for four fire times each. One call of the two runs it, the other is
// skipped; on a machine that stands still for longer than an interval both may be.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), "", &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	var ran, skipped, recorded int
	if _, err := fmt.Sscanf(out.String(), "ran: %d\nskipped: %d\nin the history: %d", &ran, &skipped, &recorded); err != nil {
		t.Fatal(err)
	}
	if ran < 1 || ran > 4 || ran+skipped != 8 || recorded != ran {
		t.Error("want up to 4 runs of 8 calls, each in the history")
	}
}

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits as long as the program does: 5 s")
	}
	err := run(t.Context(), "127.0.0.1:1", io.Discard)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want an error that tells what cannot be reached", err)
	}
}
