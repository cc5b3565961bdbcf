package verb

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type closer func()

func (c closer) Close() error { c(); return nil }

// A verb ends although the client of etcd does not close.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, ends := time.Now(), make(chan struct{})
		Close(closer(func() { <-ends }))
		require.Equal(t, closeTime, time.Since(begun))
		close(ends)

		begun = time.Now()
		Close(closer(func() { time.Sleep(closeTime / 2) }))
		require.Equal(t, closeTime/2, time.Since(begun), "it is awaited as long as it may end")
	})
}
