package console

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Viewers that leave before their page is read leave a bounded number of readings.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	s := shared{session: t.Context()}
	gone, leave := context.WithCancel(t.Context())
	leave()
	release := make(chan struct{})
	var ended sync.WaitGroup
	begin := func(i int) error {
		ended.Add(1)
		_, _, err := s.get(gone, fmt.Sprint(i), readEvery, func(context.Context) (any, error) { defer ended.Done(); <-release; return i, nil })
		if err == errBusy { //nolint:errorlint // as it is
			ended.Done()
		}
		return err
	}
	for i := range maxReads {
		require.ErrorIs(t, begin(i), context.Canceled)
	}
	require.ErrorIs(t, begin(maxReads), errBusy)
	require.ErrorIs(t, begin(0), context.Canceled, "one that is being read is shared")
	ended.Done() // its function is not called
	close(release)
	ended.Wait()
	for { // until the last one is counted
		v, _, err := s.get(t.Context(), "again", readEvery, func(context.Context) (any, error) { return "read", nil })
		if err == nil {
			require.Equal(t, "read", v)
			return
		}
		require.ErrorIs(t, err, errBusy)
	}
}

// A read that took long is repeated seldom, and one that failed soon.
func TestReadsAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := shared{session: t.Context()}
		n := 0
		read := func(err error) (any, error) {
			v, _, err := s.get(t.Context(), "page", readEvery, func(context.Context) (any, error) { time.Sleep(5 * time.Second); n++; return n, err })
			return v, err
		}
		_, err := read(context.DeadlineExceeded)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(readEvery + time.Millisecond)
		for range 4 {
			v, err := read(nil)
			require.NoError(t, err)
			require.Equal(t, 2, v)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(6 * time.Second)
		v, err := read(nil)
		require.NoError(t, err)
		require.Equal(t, 3, v)
	})
}
