package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A verb that does not find a name prints the commands that show it where etcd has it: in another namespace, as
// the key of a limiter, as something of another kind. Each command is right as it is printed.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	s := f.Session("web-7")
	sem, err := concurrency.NewSemaphore(s, "charge", 2, nil)
	require.NoError(t, err)
	f.Permit(sem.Acquire(ctx))
	lim, err := concurrency.NewKeyedLimiter(s, "api", 3, nil)
	require.NoError(t, err)
	f.Permit(lim.Key("tenant 7").Acquire(ctx))
	_, err = f.Locker("web-7").Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	f.Lost("orders", clitest.Order("1"))

	for line, want := range map[string][]string{
		"show -N tset charge":                      {"show -N test semaphore/charge"},
		"show -N test mutex/charges":               nil, // of a mutex that is free etcd has nothing
		"show -N test semaphore/api":               {"show -N test limiter/api"},
		"show -N test 'tenant 7'":                  {"show -N test 'limiter/api/tenant 7'"},
		"show -N tset 'limiter/api/tenant 7'":      {"show -N test 'limiter/api/tenant 7'"},
		"show -N test invoices":                    {"jobs history -N test invoices"},
		"limit -N test orders 5":                   {"requests list -N test orders"},
		"limit -N tset semaphore/charge 5":         {"show -N test semaphore/charge"}, // nothing that changes something
		"evict -N tset charge 5 --yes":             {"show -N test semaphore/charge"},
		"jobs history -N tset invoices":            {"jobs history -N test invoices"},
		"jobs pause -N test charge --reason x":     {"show -N test semaphore/charge"},
		"requests list -N test charge":             {"show -N test semaphore/charge"},
		"requests list -N tset orders":             {"requests list -N test orders"},
		"requests get -N test orders " + unknown:   nil, // the store is there
		"show -N test chrage":                      nil,
		"release -N test semaphore/charge --id no": nil,
	} {
		r := f.Run(clitest.Words(t, line)...)
		_, printed, _ := strings.Cut(r.Err, "etcd has the name elsewhere:\n")
		var commands []string
		for command := range strings.Lines(printed) {
			command = strings.TrimPrefix(strings.TrimSpace(command), "etcdkit ")
			commands = append(commands, command)
			require.Zero(t, f.Run(clitest.Words(t, command)...).Code, "%s: %s", line, command)
		}
		require.Equal(t, want, commands, "%s: %s", line, r.Err)
		if want != nil {
			require.Equal(t, exit.Failed, r.Code, line)
		}
	}
}

// unknown is the reference of a request that no store has.
var unknown = strings.Repeat("0", 16) + "/" + strings.Repeat("A", 43)

// Of a name that many namespaces have, a few commands are printed, and how many more there are.
func TestElsewhereManyTimes(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for _, namespace := range strings.Split("a b c d e f g", " ") {
		r := f.Run("hold", "-N", namespace, "production", "--limit", "2", "--id", "x", "--for", "10m")
		require.Zero(t, r.Code, r.Err)
	}
	r := f.Run("show", "-N", "test", "production")
	require.Contains(t, r.Err, "  etcdkit show -N e semaphore/production\n  and 2 more\n")
}

// What other tools call a verb or the namespace leads to those of this one.
func TestOtherTools(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for line, want := range map[string]string{
		"status charge":        "show",
		"list":                 "ls",
		"-n payments ls":       "the namespace is -N",
		"jobs -n payments":     "the namespace is -N",
		"show -N test api/t-7": "a key of limiter api is limiter/api/t-7",
		"ls -N test":           "etcd has no queue in namespace test",
	} {
		require.Contains(t, f.Run(clitest.Words(t, line)...).Err, want, line)
	}
}

// A user whose role has one namespace gets the error alone.
func TestElsewhereIsDenied(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	f := &clitest.Fixture{T: t, Etcd: embedtest.Start(t, nil), Prefix: "/etcdkit"}
	require.NoError(t, f.Etcd.AddUser(ctx, "reader", "secret", "/etcdkit/v1/payments/"))
	require.NoError(t, f.Etcd.EnableAuth(ctx, "root", "secret"))
	require.Zero(t, f.Run("hold", "-N", "orders", "charge", "--id", "x", "--for", "10m", "--user", "root:secret").Code)
	r := f.Run("show", "-N", "payments", "charge", "--user", "reader:secret")
	require.Equal(t, exit.Failed, r.Code, r.Err)
	require.Equal(t, 1, strings.Count(r.Err, "\n"), r.Err)
	require.Contains(t, f.Run("show", "-N", "payments", "charge", "--user", "root:secret").Err, "  etcdkit show -N orders mutex/charge\n")
}
