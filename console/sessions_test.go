package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// The page of the sessions shows which clocks differ from the console's.
func TestClocks(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", nil)
	ctx := testkit.Context(t)
	space, err := keyspace.New(s.Root, "test")
	require.NoError(t, err)
	client := s.NewClient(t, nil)
	s.page("/sessions") // from now on clocks are compared
	shown := func(owner, clock string) bool {
		_, row, _ := strings.Cut(s.page("/sessions"), "<bdi>"+owner+"</bdi>")
		row, _, _ = strings.Cut(row, "</tr>")
		return strings.Contains(row, clock)
	}
	// What arrives late says nothing about clocks: then others write.
	measured := func(owner string, ahead time.Duration, clock string) {
		for i := range 20 {
			name := fmt.Sprint(owner, "-", i)
			lease, err := client.Grant(ctx, 600)
			require.NoError(t, err)
			_, err = client.Put(ctx, space.Session(int64(lease.ID)).Alive(), record.Clock{Owner: name, AtMS: time.Now().Add(ahead).UnixMilli()}.Encode(), clientv3.WithLease(lease.ID))
			require.NoError(t, err)
			for range 30 {
				if time.Sleep(100 * time.Millisecond); shown(name, clock) {
					return
				}
			}
		}
		t.Fatalf("no clock is shown as %s", clock)
	}
	measured("fast", time.Hour, "ahead</span></td>")
	measured("slow", -time.Hour, "behind</span></td>")
	require.True(t, shown("console", `data-th="Clock">–</td>`))
}
