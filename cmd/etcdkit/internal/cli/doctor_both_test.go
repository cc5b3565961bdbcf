package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A418 in internal/proof/tested-failures.md: the command's doctor and the console's find the same in one namespace, with the same
// words: that of the command had left out rates.
func TestBothDoctors(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	f.Crowd("charge")
	s := f.Session("web-7")
	_, err := concurrency.NewRateLimiter(s, "mails", concurrency.Rate{PerSecond: 20, Burst: 20}, nil)
	require.NoError(t, err)
	_, err = f.Locker("web-7").Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	f.Lost("orders", clitest.Order("1"))
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(t, err)
	again := record.Run{State: record.RunDone, Attempt: 2, StartMS: 1, EndMS: 2, Earlier: []record.Ended{{Attempt: 1, State: record.RunRunning}}}
	slow := record.Request{Nonce: "n", AtMS: time.Now().Add(-time.Hour).UnixMilli(), MaxHoldMS: 1000}
	held := space.Queue(keyspace.Mutex, "report").Slot(keyspace.Slot{Lease: int64(s.Lease()), Number: 7, Weight: 1})
	failed := record.Run{State: record.RunFailed, Attempt: 1, StartMS: 1, EndMS: time.Now().Add(-time.Hour).UnixMilli()}
	waits := record.Request{Nonce: "n", AtMS: time.Now().Add(-2 * time.Hour).UnixMilli()}
	mail := space.Queue(keyspace.Semaphore, "mail")
	hangs := space.Job("hangs")
	for key, value := range map[string]string{
		space.Job("nightly").Run(clitest.Tick(0)): failed.Encode(),
		hangs.Settings(): record.Settings{Text: "AtMost 1m" + record.Period + "1h0m0s"}.Encode(),
		space.Store("orders").Entry("acme", "POST /orders", "8").Record: record.Attempt{State: record.AttemptWorking, Number: 1}.Encode(),
		mail.Limit: record.Limit{Limit: 1}.Encode(),
		space.Queue(keyspace.Rate, "mails").Range + "stray":             "x",
		space.Queue(keyspace.Rate, "old").Limit:                         record.Limit{Limit: 0}.Encode(),
		space.Limiter("api").Default:                                    record.Limit{Limit: 0}.Encode(),
		space.Limiter("api").Key("acme").Limit:                          record.Limit{Limit: 1}.Encode(),
		space.Limiter("api").Total().Limit:                              record.Limit{Limit: 0}.Encode(),
		space.Limiter("closed").Default:                                 record.Limit{Limit: 0}.Encode(),
		space.Queue(keyspace.Semaphore, "later").Limit:                  `{"v":9}`,
		space.Job("sweep").Run(clitest.Tick(0)):                         again.Encode(),
		space.Job("gone").Plan():                                        record.Plan{Schedule: "fire times", AliveMS: time.Now().UnixMilli()}.Encode(),
		space.Job("invoices").Range + "stray":                           "x",
		space.Store("orders").Entry("acme", "POST /orders", "9").Record: `{"v":9}`,
		space.Root() + "elsewhere":                                      "x",
		held:                                                            slow.Encode(),
	} {
		var opts []clientv3.OpOption
		if key == held {
			opts = append(opts, clientv3.WithLease(s.Lease()))
		}
		_, err = f.Etcd.Client().Put(ctx, key, value, opts...)
		require.NoError(t, err)
	}
	long := time.Now().Add(-3 * time.Hour).Truncate(time.Hour)
	_, err = f.Etcd.Client().Txn(ctx).Then(
		clientv3.OpPut(hangs.Run(long), record.Run{State: record.RunRunning, Attempt: 1, Owner: "web-7", StartMS: long.UnixMilli()}.Encode()),
		clientv3.OpPut(hangs.Lock(), "{}", clientv3.WithLease(s.Lease()))).Commit()
	require.NoError(t, err)
	for n := range 2 {
		_, err = f.Etcd.Client().Put(ctx, mail.Slot(keyspace.Slot{Lease: int64(s.Lease()), Number: 40 + n, Weight: 1}), waits.Encode(), clientv3.WithLease(s.Lease()))
		require.NoError(t, err)
	}

	r := f.Run("doctor", "-N", "test", "-o", "json", "--slow", "1m")
	require.Zero(t, r.Code, r.Out)
	var command struct{ Findings []doctor.Finding }
	require.NoError(t, json.Unmarshal([]byte(r.Out), &command))
	h, err := console.Handler(f.Session("console"), nil)
	require.NoError(t, err)
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/doctor?format=json", nil))
	require.Equal(t, http.StatusOK, answer.Code)
	var page struct {
		Data struct{ Findings []doctor.Finding }
	}
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &page))
	said := func(all []doctor.Finding) (out []string) {
		for _, f := range all {
			if slices.Contains([]string{"keys", "queues", "jobs", "requests"}, f.Check) {
				out = append(out, string(f.Level)+" "+f.Check+": "+f.Text+" "+f.Advice)
			}
		}
		slices.Sort(out)
		return out
	}
	require.Equal(t, said(command.Findings), said(page.Data.Findings))
	all := ""
	for _, f := range command.Findings {
		all += f.Text + "\n"
	}
	for _, want := range []string{
		"rate/mails: 1 foreign key", "rate/old: paused by a limit of 0", "limiter/closed: its keys are paused", "limiter/api: paused by a limit of 0", "semaphore/later: its limit cannot be read",
		"job gone: no live process", "job sweep: 0 of 1 stored runs were lost, and 1 attempt", "store orders: 1 record cannot be read",
		"job nightly: 1 of 1 stored runs failed, the last one among them", "job hangs: a run is active past the next tick of", // A730
		"semaphore/mail: a request has waited since", "semaphore/mail: a permit without a MaxHold has been held since", "of 3 requests have an unknown outcome",
		"mutex/report: 1 holder has asked longer ago than its MaxHold",
	} {
		require.Contains(t, all, want)
	}
	require.NotContains(t, all, "limiter/api: its keys are paused")
}
