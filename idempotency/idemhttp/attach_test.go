package idemhttp_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// Operations that a handler gave to its attempt take effect with a response of success alone,
// recorded or not, as Do does them for a function that returns no error.
func TestOperationsOfAFailedHandler(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		a, _ := idempotency.FromContext(r.Context())
		a.Attach(nil, clientv3.OpPut(f.Root+"debit"+r.URL.RawQuery, "1"))
		status, _ := strconv.Atoi(r.URL.RawQuery)
		if r.URL.Path == "/decided" {
			idemhttp.Decide(r.Context(), idempotency.Remember)
		}
		w.WriteHeader(status)
	})
	for _, c := range []struct {
		path           string
		status         int
		recorded, done bool
	}{
		{"/", 201, true, true}, {"/", 303, true, true},
		{"/", 402, true, false}, {"/", 409, true, false}, {"/", 500, false, false}, {"/decided", 503, true, false},
	} {
		query := strconv.Itoa(c.status)
		require.Equal(t, c.status, s.post(c.path+"?"+query, query, "body").StatusCode)
		resp, err := f.Client().Get(ctxT(t), f.Root+"debit"+query)
		require.NoError(t, err)
		require.Equal(t, c.done, len(resp.Kvs) == 1, c.status)
		require.Equal(t, c.recorded, s.post(c.path+"?"+query, query, "body").replayed(), c.status)
	}
}
