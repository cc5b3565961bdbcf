package console

import (
	"context"
	"fmt"
	"sync"
	"testing"

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
