package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// A stored time may be any number. One that JSON has no form for keeps nothing else from being shown.
func TestTimesOfAnyYear(t *testing.T) {
	t.Parallel()
	for _, ms := range []string{"300000000000000", "-300000000000000", "9223372036854775807", "-9223372036854775808"} {
		t.Run(ms, func(t *testing.T) {
			t.Parallel()
			f := clitest.New(t)
			ctx := testkit.Context(t)
			sess := f.Session("web-7")
			sem, err := concurrency.NewSemaphore(sess, "charge", 1, nil)
			require.NoError(t, err)
			f.Permit(sem.Acquire(ctx))
			lim, err := concurrency.NewKeyedLimiter(sess, "api", 5, &concurrency.KeyedLimiterOptions{Total: 9})
			require.NoError(t, err)
			f.Permit(lim.Key("acme").Acquire(ctx))
			e, err := concurrency.NewElection(sess, "shard")
			require.NoError(t, err)
			f.Permit(e.Campaign(ctx))
			s := f.Orders()
			space, err := keyspace.New(f.Prefix, "test")
			require.NoError(t, err)
			job := space.Job("invoices")
			client := f.Etcd.Client()
			for key, value := range map[string]string{
				job.Run(time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)): record.Run{State: record.RunDone, Attempt: 1, StartMS: 7, EndMS: 9}.Encode(),
				job.Settings(): record.Settings{Text: "AtMost 1m0s, AtLeast 0s, Retries 0" + record.Period + "1h0m0s"}.Encode(), job.Pause(): record.Pause{By: "web-7", AtMS: 7}.Encode(),
			} {
				_, err := client.Put(ctx, key, value)
				require.NoError(t, err)
			}
			resp, err := client.Get(ctx, f.Prefix, clientv3.WithPrefix())
			require.NoError(t, err)
			stored := regexp.MustCompile(`"(at|start|end)":\d+`)
			changed := 0
			for _, kv := range resp.Kvs {
				if other := stored.ReplaceAll(kv.Value, []byte(`"$1":`+ms)); string(other) != string(kv.Value) {
					_, err = client.Put(ctx, string(kv.Key), string(other), clientv3.WithIgnoreLease())
					require.NoError(t, err)
					changed++
				}
			}
			require.Greater(t, changed, 8)
			ref := string(s.Ref(clitest.Order("1")))
			for _, line := range []string{
				"ls", "show charge", "show limiter/api", "show limiter/api/acme", "show election/shard", "top", "elections",
				"jobs", "jobs history invoices", "requests", "requests list orders", "requests get orders " + ref, "requests stats orders",
			} {
				args := append(strings.Fields(line), "-N", "test")
				table := f.Run(args...)
				require.Zero(t, table.Code, "%s: %s", line, table.Err)
				got := f.Run(append(args, "-o", "json")...)
				require.Zero(t, got.Code, "%s: %s", line, got.Err)
				require.True(t, json.Valid([]byte(got.Out)), "%s: %s", line, got.Out)
			}
			require.Contains(t, f.Run("show", "charge", "-N", "test").Out, "web-7")
			require.Zero(t, f.Run("jobs", "resume", "invoices", "-N", "test", "--yes").Code)
			require.Zero(t, f.Run("jobs", "-N", "test", "-o", "json").Code, "its next fire time is in the year 10000")
		})
	}
}
