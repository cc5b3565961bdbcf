package console_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A366: the list of changes has what was there when the change was applied: also of a program's form, which does not say
// what its page has shown, and if another operator has changed it just before.
func TestChangesHaveWhatTheyReplaced(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	sm := s.semaphore("web-7", "charge", 2)
	s.acquire(sm)
	set := func(name, limit string) url.Values {
		return url.Values{"do": {"set-limit"}, "name": {name}, "confirm": {name}, "value": {limit}, "reason": {"to " + limit}}
	}
	has := func(before, after string) {
		t.Helper()
		require.Contains(t, s.page("/changes"), `<td data-th="Before"><bdi>`+before+`</bdi></td><td data-th="After"><bdi>`+after+`</bdi></td>`)
	}
	s.followed(s.post(set("semaphore/charge", "0")))
	has("2", "0")

	form := s.form("set-limit", "semaphore/charge", "", "value", "4")
	other := s.semaphore("web-8", "charge", 2)
	s.etcd.Inject(embedtest.Fault{Method: "Txn", Before: func() { require.NoError(t, other.SetLimit(testkit.Context(t), 3)) }, Match: func(_ string, msg any) bool {
		txn, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && len(txn.Success) > 0 && strings.HasSuffix(string(txn.Success[0].GetRequestPut().GetKey()), "charge/limit")
	}})
	s.followed(s.post(form))
	has("3", "4")

	ref := string(s.lose("orders", "K-1"))
	s.followed(s.post(url.Values{"do": {"resolve"}, "name": {"orders"}, "target": {ref}, "confirm": {"orders"}, "value": {"failed"}, "reason": {"refused"}}))
	has("unknown", "failed")
}
