package main

import (
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
)

// childEnv makes the test binary what is stopped: it ends when it was stopped that
// often, with that number as its status, or with 99 if it never has.
const childEnv = "STALL_CHILD"

func TestMain(m *testing.M) {
	often, err := strconv.Atoi(os.Getenv(childEnv))
	if err != nil {
		embedtest.Main(m)
		return
	}
	const stood = 50 * time.Millisecond
	still, begun := 0, time.Now()
	for last := begun; time.Since(begun) < 20*time.Second; time.Sleep(time.Millisecond) {
		if now := time.Now(); now.Sub(last) > stood {
			if still++; still == often {
				os.Exit(often)
			}
		}
		last = time.Now()
	}
	os.Exit(99)
}

func TestRun(t *testing.T) {
	t.Setenv(childEnv, "3")
	status, err := run([]string{os.Args[0]}, 300*time.Millisecond, 50*time.Millisecond)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("this system cannot stop a process: %v", err)
	}
	require.NoError(t, err)
	require.Equal(t, 3, status)

	_, err = run([]string{t.TempDir() + "/nothing"}, time.Second, time.Second)
	require.ErrorIs(t, err, os.ErrNotExist)
}
