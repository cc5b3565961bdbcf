package output

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Progress is one line that is replaced, at most ten times a second, and erased at the end.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &Progress{out: &out}
		p.End()
		require.Empty(t, out.String())
		for n := range 3 {
			p.Set("%d read", n)
			time.Sleep(60 * time.Millisecond)
		}
		p.End()
		p.End()
		require.Equal(t, "\r\x1b[K0 read\r\x1b[K2 read\r\x1b[K", out.String())
		NewProgress(&out).Set("nothing without a terminal")
	})
}
