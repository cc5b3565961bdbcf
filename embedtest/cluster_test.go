package embedtest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

func TestStartedClusterAnswersAtEveryMember(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	for _, n := range []int{1, 3} {
		c := Start(t, &Options{Members: n})
		require.Len(t, c.Endpoints(), n)
		for i := range n {
			_, err := c.NewClient(t, &ClientOptions{Endpoints: c.Endpoints()[i : i+1]}).Put(within(t, patience), "k", "v")
			require.NoError(t, err)
		}
		require.NotEqual(t, -1, c.Leader())
		require.False(t, c.External())
	}
}

// An open watch does not delay Close. etcd alone waits 5 s for it.
func TestCloseWithOpenWatches(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	// Several times, because etcd alone waits in about half of the cases.
	for _, n := range []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3} {
		c, err := New(t.Context(), &Options{Members: n})
		require.NoError(t, err)
		cl, err := c.Dial(t.Context(), nil)
		require.NoError(t, err)
		outside, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: c.log})
		require.NoError(t, err)
		for range 10 {
			for _, w := range []*clientv3.Client{c.Client(), cl.Client, outside} {
				r := <-w.Watch(context.Background(), "w", clientv3.WithCreatedNotify())
				require.True(t, r.Created)
			}
		}
		dir := c.dir
		begin := time.Now()
		require.NoError(t, c.Close())
		require.Less(t, time.Since(begin), 4*time.Second, "%d members", n)
		require.NoDirExists(t, dir)
		require.NoError(t, c.Close(), "a second Close")
		require.NoError(t, cl.Close(), "closed with the cluster")
		require.NoError(t, outside.Close())
		_, err = c.Dial(t.Context(), nil)
		require.Error(t, err)
	}
}

func TestDataDirIsPrivateAndTemporary(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c, err := New(t.Context(), nil)
	require.NoError(t, err)
	for _, dir := range []string{c.dir, c.members[0].dir} {
		st, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), st.Mode().Perm())
	}
	require.NoError(t, c.Close())
	require.NoDirExists(t, c.dir)
}

func TestGivenDirSurvives(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	opts := &Options{Dir: t.TempDir(), Fsync: true}
	c, err := New(t.Context(), opts)
	require.NoError(t, err)
	put(t, c.Client(), "k", "kept")
	require.NoError(t, c.Close())
	require.Equal(t, "kept", value(t, Start(t, opts), "k"))
}

// A member can start on the data of a process with larger segments, or of etcd itself.
func TestDirOfLargerSegments(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	opts := &Options{Dir: t.TempDir()}
	c, err := New(t.Context(), opts)
	require.NoError(t, err)
	put(t, c.Client(), "k", "kept")
	require.NoError(t, c.Close())
	files, err := filepath.Glob(filepath.Join(opts.Dir, "m0/member/wal/*.wal"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	require.NoError(t, os.Truncate(files[len(files)-1], 64_000_000))
	c = Start(t, opts)
	require.Equal(t, "kept", value(t, c, "k"))
	put(t, c.Client(), "k", "changed")
	require.NoError(t, c.Restart(within(t, patience), 0))
	require.Equal(t, "changed", value(t, c, "k"))
}

// F65: a process that binds ports at the same time gets other ones.
func TestPortsWithoutARace(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var taken []net.Listener
		for len(taken) < 500 {
			select {
			case <-stop:
			default:
				l, err := net.Listen("tcp4", "127.0.0.1:0")
				if err == nil {
					taken = append(taken, l)
					continue
				}
			}
			break
		}
		<-stop
		for _, l := range taken {
			_ = l.Close()
		}
	})
	var clusters sync.WaitGroup
	errs := make(chan error, 8)
	for range 8 {
		clusters.Go(func() {
			c, err := New(within(t, patience), nil)
			if err == nil {
				err = c.Close()
			}
			errs <- err
		})
	}
	clusters.Wait()
	close(stop)
	wg.Wait()
	for range 8 {
		require.NoError(t, <-errs)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	for want, o := range map[string]Options{
		"Members":           {Members: -1},
		"HeartbeatInterval": {HeartbeatInterval: time.Microsecond},
		"ElectionTimeout":   {ElectionTimeout: 20 * time.Millisecond},
		"AuthTokenTTL":      {AuthTokenTTL: 1500 * time.Millisecond},
	} {
		_, err := New(t.Context(), &o)
		require.ErrorContains(t, err, want)
	}
}

func TestConfigureOverridesOptions(t *testing.T) {
	t.Parallel()
	c := Start(t, &Options{Configure: func(cfg *embed.Config) { cfg.MaxTxnOps = 1 }})
	_, err := c.Client().Txn(t.Context()).Then(clientv3.OpPut("a", ""), clientv3.OpPut("b", "")).Commit()
	require.ErrorContains(t, err, "too many operations")
}

func TestShortLeases(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, nil)
	resp, err := c.Client().Grant(t.Context(), 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, resp.TTL)
}

func TestPrefixesDiffer(t *testing.T) {
	t.Parallel()
	t.Run("with a/slash and ünïcode", func(t *testing.T) {
		c := Shared(t)
		a, b := c.Prefix(t), c.Prefix(t)
		require.NotEqual(t, a, b)
		require.Regexp(t, `^/embedtest/TestPrefixesDiffer-with_a-slash_and_-n-code-[0-9a-f]{12}/$`, a)
	})
}
