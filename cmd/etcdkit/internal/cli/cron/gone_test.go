package cron

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A245: another machine has claimed the tick, and takes the claim back, as one does whose session ends before the command
// begins. The call on standby runs the command; it does not say that it was run elsewhere.
func TestClaimThatIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			server := etcdfake.New(t)
			now := func() time.Time { return time.Now().UTC() }
			other, endOther := host(t, server, "etcdkit jobs run by other, process 1", now)
			defer endOther()
			this, end := host(t, server, "etcdkit jobs run by this, process 1", now)
			defer end()
			begun, ended := make(chan *schedlock.Run), make(chan struct{})
			v := scheduledRun{now: now, every: time.Hour, retries: retries}
			go func() {
				defer close(ended)
				call, cancel := context.WithCancel(t.Context())
				defer cancel()
				_, _ = other.Do(call, "backup", func(ctx context.Context, r *schedlock.Run) error {
					begun <- r
					<-ctx.Done()
					cancel() // as the verb does
					return nil
				}, v.options(now(), 0)...)
			}()
			r := <-begun
			var said bytes.Buffer
			v.verbose = true
			v.Call = &verb.Call{Std: verb.Streams{Out: &said, Err: io.Discard}, Etcd: verb.Connection{Timeout: time.Minute}}
			v.Kind, v.Name = "job", "backup"
			ran := 0
			v.work = func(context.Context, *schedlock.Run, []string, <-chan struct{}) error { ran++; return nil }
			done := make(chan error, 1)
			go func() { done <- v.attend(t.Context(), this, nil) }()
			time.Sleep(10 * time.Second)
			client := server.NewClient()
			defer func() { _ = client.Close() }()
			guard := r.Guard()
			jobs := string(bytes.TrimSuffix(guard.KeyBytes(), []byte("lock")))
			_, err := client.Txn(t.Context()).Then(clientv3.OpDelete(jobs+"run/", clientv3.WithPrefix()), clientv3.OpDelete(string(guard.KeyBytes()))).Commit()
			require.NoError(t, err)
			require.NoError(t, <-done)
			require.Equal(t, 1, ran, "%d retries", retries)
			require.Empty(t, said.String())
			<-ended
		})
	}
}
