package main

import (
	"bytes"
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A line that is longer than the terminal is wide would wrap, and what takes it off again takes one row.
func TestWithin(t *testing.T) {
	t.Parallel()
	for columns, want := range map[int]string{80: "race 6 s", 9: "race 6 s", 8: "race 6 ", 1: ""} {
		require.Equal(t, want, within(columns, "race 6 s"), columns)
	}
}

// Within ten seconds a run shows that it works, and then how far it is.
func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &progress{w: &out, target: "race", begun: time.Now(), done: make(chan struct{})}
		time.Sleep(3 * time.Second)
		ctx, end := context.WithCancel(t.Context())
		p.end = end
		go p.loop(ctx)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, "race   6 s: 0 of all packages tested, compiling (the first build compiles etcd and gRPC, which can take minutes)\n", out.String())
		p.all = 3
		p.started(event{Action: "start", Package: ours + "/concurrency"})
		p.started(event{Action: "start", Package: ours + "/schedlock"})
		p.started(event{Action: "run", Package: ours + "/idempotency"})
		require.Contains(t, p.text(time.Minute), "race  60 s: 0 of 3 packages tested, running concurrency, schedlock")
		p.ended(ours + "/concurrency")
		require.Contains(t, p.text(time.Minute), "1 of 3 packages tested, running schedlock")
		p.ended(ours + "/schedlock")
		require.Contains(t, p.text(time.Minute), "2 of 3 packages tested, compiling")
		p.stop()
	})
	var none *progress
	none.started(event{Action: "start"})
	none.ended("x")
	none.clear()
	none.stop()
}

// It is shown to a person at a terminal and in the log of CI, and not in a pipe.
func TestProgressOn(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	t.Setenv("CI", "")
	require.Nil(t, progressOn(w))
	t.Setenv("CI", "true")
	require.NotNil(t, progressOn(w))
}
