package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// A339: the next watch, which begins with a list, takes longer than three probes to come as far as the former one: what is shown
// does not go back meanwhile. Only if etcd itself has gone back, the watch ends, and the namespace is read.
func TestNothingOlderIsShown(t *testing.T) {
	t.Parallel()
	const probe, shown = 5 * time.Second, 100
	type response struct {
		after       time.Duration
		event, etcd int64 // the revision of a change, or 0; that of etcd
		shows       int64
		ends        bool
	}
	for name, responses := range map[string][]response{
		"at once":                {{0, 60, 110, 100, false}, {time.Second, 105, 110, 105, false}},
		"no changes":             {{0, 0, 100, 100, false}},
		"it takes long":          {{time.Second, 60, 110, 100, false}, {20 * time.Second, 70, 110, 100, false}, {time.Minute, 99, 110, 100, false}, {time.Second, 100, 120, 100, false}, {time.Second, 118, 120, 118, false}},
		"a member is behind":     {{time.Second, 60, 90, 100, false}, {10 * time.Second, 95, 95, 100, false}, {time.Second, 101, 101, 101, false}},
		"etcd was restored":      {{time.Second, 60, 60, 100, false}, {15 * time.Second, 0, 60, 100, true}},
		"restored, with changes": {{time.Second, 60, 60, 100, false}, {15 * time.Second, 62, 62, 100, true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				space, err := keyspace.New("/etcdkit", "shop")
				require.NoError(t, err)
				f := New(nil, nil, space, Options{Probe: probe, Logger: zap.NewNop(), Now: time.Now})
				f.replace(reading{state: NewState(space, false), revision: shown})
				f.catchUp(reading{state: NewState(space, false), revision: 50, at: time.Now()})
				for _, r := range responses {
					time.Sleep(r.after)
					var resp clientv3.WatchResponse
					switch header := any(&resp.Header).(type) {
					case *etcdserverpb.ResponseHeader: // of etcd's client 3.6
						header.Revision = r.etcd
					case **etcdserverpb.ResponseHeader: // of 3.7
						*header = &etcdserverpb.ResponseHeader{Revision: r.etcd}
					}
					if r.event != 0 {
						resp.Events = []*clientv3.Event{{Kv: &mvccpb.KeyValue{Key: []byte(space.Queue(keyspace.Semaphore, "charge").Limit), Value: []byte("{}"), CreateRevision: r.event, ModRevision: r.event}}}
					}
					require.Equal(t, r.ends, f.received(resp) != nil, r)
					require.Equal(t, r.shows, f.Meta().Revision, r)
				}
			})
		})
	}
}
