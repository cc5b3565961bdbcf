package cli_test

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/jobs"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A slow etcd is no outage: verbs that read many names have --command-timeout for each answer.
func TestManyNamesOnASlowEtcd(t *testing.T) {
	t.Parallel()
	onSlowEtcd(t, "Txn", 400*time.Millisecond, func(t *testing.T, sess *concurrency.Session, slow func()) {
		l, err := schedlock.New(sess, nil)
		require.NoError(t, err)
		const many = 80
		for n := range many {
			_, err := l.Do(t.Context(), strconv.Itoa(n), clitest.Nothing, schedlock.Tick(time.Now()))
			require.NoError(t, err)
		}
		slow()
		var out bytes.Buffer
		a := &verb.Call{Std: verb.Streams{Out: &out}, Output: "table", Etcd: verb.Connection{Timeout: 3 * time.Second}}
		began := time.Now()
		require.NoError(t, jobs.List(t.Context(), a, sess))
		require.Greater(t, time.Since(began), a.Etcd.Timeout, "or this shows nothing")
		require.Equal(t, many+1, strings.Count(out.String(), "\n"))
	})
}

// onSlowEtcd runs f in virtual time, with a session on an etcd that answers requests of a method late from the call of slow on.
func onSlowEtcd(t *testing.T, method string, late time.Duration, f func(t *testing.T, sess *concurrency.Session, slow func())) {
	t.Helper()
	etcdfake.Test(t, func(t *testing.T, etcd *etcdfake.Server) {
		c := etcd.NewClient()
		sess, err := concurrency.NewSession(t.Context(), c.Client, "test", nil)
		require.NoError(t, err)
		f(t, sess, func() {
			c.Inject(func(m etcdfake.Message) (fault etcdfake.Fault) {
				if m.Method == method {
					fault.RequestDelay = late
				}
				return fault
			})
		})
		c.Inject(nil)
		ended, cancel := context.WithCancel(t.Context()) // for what it holds
		cancel()
		_ = sess.Close(ended)
	})
}
