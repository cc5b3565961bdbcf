package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Each action leaves who has made it, on what, from what to what and why, also one that has failed. The page of the changes
// shows that, to viewers that may read the name (A189 in internal/proof/tested-failures.md).
func TestChanges(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Actor: func(*http.Request) string { return "ada" }, Authorize: func(r *http.Request, a console.Action) error {
		if a.Name == "job/secret" && r.Header.Get("X-All") == "" {
			return errors.New("not for you")
		}
		return nil
	}})
	all := func(r *http.Request) { r.Header.Set("X-All", "1") }
	sm := s.semaphore("web-7", "charge", 2)
	p := s.acquire(sm)
	s.job("secret", nil)
	require.Contains(t, s.page("/changes"), "There is no recorded change here that you may see.")
	s.followed(s.post(s.form("set-limit", "semaphore/charge", "", "value", "7", "reason", "Black Friday")))
	s.followed(s.submit("evict", "semaphore/charge", fmt.Sprint(p.Token()), "reason", "stuck"))
	require.Equal(t, http.StatusConflict, s.submit("evict", "semaphore/charge", "7").StatusCode)
	paused := s.post(url.Values{"do": {"pause"}, "name": {"secret"}, "confirm": {"secret"}, "reason": {"classified"}}, all)
	require.Equal(t, http.StatusSeeOther, paused.StatusCode, paused.body)

	body := s.page("/changes")
	require.Contains(t, body, `<td data-th="Operator"><bdi>ada</bdi></td><td data-th="Action">set-limit</td>`)
	require.Contains(t, body, `<td data-th="Before"><bdi>2</bdi></td><td data-th="After"><bdi>7</bdi></td><td data-th="Reason"><bdi>Black Friday</bdi></td><td data-th="Outcome"><span class="mark ok">done</span></td>`)
	require.Contains(t, body, fmt.Sprintf("<code class=\"copied\">%d</code>", p.Token()))
	require.Contains(t, body, `<span class="mark bad">failed</span>`)
	require.NotContains(t, body, "classified")
	require.Contains(t, s.get("/changes", all).body, "classified")
	require.Equal(t, 1, strings.Count(s.page("/changes?show=set-limit"), "data-th=\"Operator\""))
	require.Equal(t, 3, strings.Count(s.page("/changes?name=semaphore/charge"), "data-th=\"Operator\""))
	require.Contains(t, s.page("/queue?name=semaphore/charge"), "changes?name=semaphore")

	// They end after thirty days.
	for key := range s.Values("") {
		if strings.Contains(key, "/change/") {
			resp, err := s.etcd.Get(testkit.Context(t), key)
			require.NoError(t, err)
			ttl, err := s.etcd.TimeToLive(testkit.Context(t), clientv3.LeaseID(resp.Kvs[0].Lease))
			require.NoError(t, err)
			require.EqualValues(t, 30*24*3600, ttl.GrantedTTL)
		}
	}

	// Those of the command are among them.
	space, err := keyspace.New(s.Root, "test")
	require.NoError(t, err)
	_, err = s.etcd.Put(testkit.Context(t), space.Change(time.Now().UnixMilli(), "x"), record.Change{AtMS: time.Now().UnixMilli(), By: "bob", Verb: "forget", Name: "job/old"}.Encode())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(s.page("/changes?show=forget"), `href="job?name=old"`) }, testkit.Soon, 20*time.Millisecond)
	require.Contains(t, s.page("/changes"), `show=forget`)
}

// No more than so many changes are kept: the oldest are deleted.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ctx := testkit.Context(t)
	space, err := keyspace.New(s.Root, "test")
	require.NoError(t, err)
	client := s.NewClient(t, nil)
	var puts []clientv3.Op
	for i := range 1100 {
		puts = append(puts, clientv3.OpPut(space.Change(int64(i+1), "x"), record.Change{AtMS: int64(i + 1), By: "ada", Verb: "evict", Name: "semaphore/charge"}.Encode()))
		if len(puts) == 100 {
			_, err := client.Txn(ctx).Then(puts...).Commit()
			require.NoError(t, err)
			puts = nil
		}
	}
	sm := s.semaphore("web-7", "charge", 2)
	s.acquire(sm)
	s.followed(s.submit("set-limit", "semaphore/charge", "", "value", "7"))
	keys := s.Keys("/change/")
	require.Len(t, keys, 1000)
	require.Contains(t, s.page("/changes"), "1 to 100 of 1000")
	require.Greater(t, keys[0], space.Change(100, "x"), "the oldest are gone: a Txn has written a hundred")
}

// An action that cannot be recorded is made: it may be what ends an incident. The log says so.
func TestChangesThatAreNotRecorded(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	s := open(t, "", &console.Options{Authorize: all, Logger: zap.New(core)})
	sm := s.semaphore("web-7", "charge", 2)
	s.acquire(sm)
	s.etcd.Inject(embedtest.Fault{Method: "Put", Times: -1, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied, Match: func(_ string, msg any) bool {
		return strings.Contains(string(msg.(*etcdserverpb.PutRequest).Key), "/change/")
	}})
	s.followed(s.submit("set-limit", "semaphore/charge", "", "value", "7"))
	require.Contains(t, s.page("/queue?name=semaphore/charge"), "Limit 7")
	require.Len(t, logs.FilterMessage("an action of the console could not be recorded in etcd").All(), 1)
	require.Empty(t, s.Keys("/change/"))
}
