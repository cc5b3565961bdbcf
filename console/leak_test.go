package console_test

import (
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// background counts the goroutines that run code of package schedlock or idempotency.
func background() (n int) {
	b := make([]byte, 16<<20)
	for _, one := range strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if strings.Contains(one, "etcdkit/schedlock.") || strings.Contains(one, "etcdkit/idempotency.") {
			n++
		}
	}
	return n
}

// However many pages are read, and however many names viewers make up, what runs in the background is that
// of one user of jobs.
func TestPagesLeaveNothingInTheBackground(t *testing.T) {
	s := open(t, "/ops", nil)
	s.job("invoices", nil)
	s.lose("orders", "1")
	read := func(i int) {
		for _, page := range []string{"/jobs", "/job?name=invoices", "/job?name=", "/store?name=", "/store?name=orders"} {
			if strings.HasSuffix(page, "=") {
				page += url.QueryEscape(fmt.Sprint("made-up-", i))
			}
			require.Less(t, s.get(page).StatusCode, 500, page)
		}
	}
	read(0)
	var before int
	require.Eventually(t, func() bool { n := background(); same := n == before; before = n; return same }, testkit.Soon, 20*time.Millisecond)
	for i := range 30 {
		read(1 + i)
	}
	require.Eventually(t, func() bool { return background() <= before+2 }, 5*time.Second, 20*time.Millisecond, "%d goroutines before", before)
}
