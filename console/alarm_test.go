package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A541: while etcd was out of space and refused each write, the first page said that nothing wants an operator.
func TestAlarmIsAProblem(t *testing.T) {
	t.Parallel()
	f := testkit.Own(t, 1)
	sess, etcd := f.Session(&concurrency.SessionOptions{Owner: "console"})
	s := serve(t, f, sess, etcd, "", nil)
	ctx := testkit.Context(t)
	require.NoError(t, f.SetNoSpace(ctx, true))
	var first string
	require.Eventually(t, func() bool { // a member that is slow is asked again
		_, table, _ := strings.Cut(s.page("/"), "What wants an operator, the worst first")
		first, _, _ = strings.Cut(table, "</tbody>")
		return first != ""
	}, testkit.Soon, 50*time.Millisecond)
	require.Contains(t, first, `<a href="doctor"><bdi>etcd</bdi></a></th><td data-th="What">cluster</td><td data-th="Is"><span class="mark bad">NOSPACE, raised by member `)
	require.Contains(t, s.page("/doctor"), "NOSPACE, raised by member ", "the row leads there")
	require.NoError(t, f.SetNoSpace(ctx, false))
	require.Eventually(t, func() bool { return !strings.Contains(s.page("/"), "NOSPACE") }, testkit.Soon, 50*time.Millisecond)
}
