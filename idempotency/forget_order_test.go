package idempotency

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/outage"
)

// A205: Delete drops the cached outcome when its revision is known to the reader, and not before: otherwise a call between
// the two could read the outcome from a member that lags behind, and put it into the cache again.
func TestForgottenAfterItsRevisionIsKnown(t *testing.T) {
	t.Parallel()
	c := embedtest.Shared(t)
	client := c.NewClient(t, nil)
	sess, err := concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{Prefix: c.Prefix(t)})
	require.NoError(t, err)
	s, err := NewStore(sess, "store", nil)
	require.NoError(t, err)
	at, _, err := s.Begin(t.Context(), Key{Scope: "tenant", Op: "pay", ID: "1"}, "payload")
	require.NoError(t, err)
	require.NoError(t, at.Commit(t.Context(), []byte("x")))
	ref := string(at.Ref())
	require.NotNil(t, s.cache.get(ref))
	var cached []bool // when the reader learns of an answer
	s.reader.outage = outage.New(func(_ struct{}, err error, _ time.Duration) {
		if err == nil {
			cached = append(cached, s.cache.get(ref) != nil)
		}
	})
	deletion := client.Inject(embedtest.Fault{Method: "Txn", Before: func() {
		s.reader.outage.Unanswered(errors.New("away"), struct{}{}, time.Now(), time.Now())
	}, Match: func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && len(r.Success) > 0 && strings.Contains(string(r.Success[0].GetRequestDeleteRange().GetKey()), "/record/")
	}})
	require.NoError(t, s.Delete(t.Context(), at.Ref()))
	require.Equal(t, 1, deletion.Hits())
	require.Equal(t, []bool{true}, cached)
	require.Nil(t, s.cache.get(ref))
	require.NoError(t, sess.Close(t.Context()))
}
