package cli_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func TestEvict(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	held := f.Crowd("charge")
	go func() { // a holder that stops when it is asked
		<-held[0].StopRequested().Done()
		_ = held[0].Release(testkit.Context(t))
	}()
	f.Shell("evict -N test charge 4711 --reason 'host is to be replaced'")
	f.Shell("evict -N test charge 4711 --yes --reason 'host is to be replaced'")
	f.Shell("evict -N test charge 4714 --yes") // the last waiter
	f.Shell("evict -N test charge 4712 --yes --wait 100ms")
	require.NoError(t, held[1].Err())
	f.Shell("evict -N test charge 4712 --yes --force --reason stuck -o json")
	testkit.Closed(t, held[1].Context().Done(), "it was evicted")
	require.ErrorIs(t, held[1].Err(), concurrency.ErrEvicted)
	require.ErrorContains(t, held[1].Err(), "stuck")
	f.Shell("evict -N test charge 4712 --yes")
	m, err := concurrency.NewMutex(f.Session("web-7"), "report")
	require.NoError(t, err)
	f.Permit(m.Lock(testkit.Context(t)))
	c := f.Etcd.NewClient(t, nil)
	stopped, err := concurrency.NewMutex(testkit.SessionOn(t, c.Client, f.Prefix, nil), "report")
	require.NoError(t, err)
	go func() { _, _ = stopped.Lock(testkit.Context(t)) }()
	f.Shows(f.Waiter(m).Token, "4720")
	c.Cut()
	f.Shell("evict -N test mutex/report 4720 --yes --wait 100ms") // its process cannot hear of it
	f.Shell("evict -N test mutex/report 4720 --yes --force")
	f.Shell("evict -N test charge none --yes")
	f.Shell("evict -N test charge 4712 --yes --wait -1s")
	f.Golden("evict")
}

// A candidate withdraws when it is asked to, and the leader leads on.
func TestEvictACandidate(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	el, err := concurrency.NewElection(f.Session("web-7"), "shard-7")
	require.NoError(t, err)
	term := f.Permit(el.Campaign(testkit.Context(t)))
	withdrawn := make(chan error, 1)
	go func() {
		other, err := concurrency.NewElection(f.Session("web-9"), "shard-7")
		if err == nil {
			_, err = other.Campaign(testkit.Context(t))
		}
		withdrawn <- err
	}()
	token := strconv.FormatInt(f.Waiter(el).Token, 10)
	require.Equal(t, 0, f.Run("evict", "-N", "test", "election/shard-7", token, "--yes", "--reason", "too old").Code)
	require.ErrorIs(t, testkit.Got(t, withdrawn, "it has withdrawn"), concurrency.ErrEvicted)
	require.NoError(t, term.StopRequested().Err())
	require.NoError(t, term.Err())
}
