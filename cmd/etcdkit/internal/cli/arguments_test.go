package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// What is missing is named as the usage calls it.
func TestArguments(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for want, args := range map[string][]string{
		"etcdkit show: NAME is missing\n":              {"show"},
		`etcdkit ls: "charge" is an argument too many`: {"ls", "charge"},
		"etcdkit evict: TOKEN is missing\n":            {"evict", "charge", "--reason", "x"},
		"--token; the token is an argument, without":   {"evict", "charge", "--token", "7"},
		"etcdkit run: NAME is missing\n":               {"run", "--", "true"},
		"etcdkit run: COMMAND is missing\n":            {"run", "charge"},
		"etcdkit run: COMMAND is missing \n":           {"run", "charge", "--"},
		`etcdkit limit: "5" is an argument too many`:   {"limit", "charge", "4", "5"},
		"etcdkit requests get: REF is missing\n":       {"requests", "get", "orders"},
	} {
		r := f.Run(args...)
		require.Equal(t, exit.Usage, r.Code)
		require.Contains(t, r.Err, strings.ReplaceAll(want, " \n", "\n"))
		require.Contains(t, r.Err, "Usage: etcdkit "+args[0])
	}
}

// A name may begin with "-": it follows "--".
func TestNamesThatBeginWithADash(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.Session("web-7")
	l, err := schedlock.New(s, nil)
	require.NoError(t, err)
	_, err = l.Do(testkit.Context(t), "-n", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	store, err := idempotency.NewStore(s, "-st", nil)
	require.NoError(t, err)
	f.Begin(store, clitest.Order("1"))
	q, err := concurrency.NewSemaphore(s, "-q", 1, nil)
	require.NoError(t, err)
	f.Permit(q.Acquire(testkit.Context(t)))
	for args, want := range map[string]string{
		"jobs pause --reason x -- -n": "paused",
		"jobs history -- -n":          "done",
		"requests stats -- -st":       "in-progress       1",
		"show -- -q":                  "used 1",
	} {
		r := f.Run(append([]string{"-N", "test"}, strings.Fields(args)...)...)
		require.Zero(t, r.Code, "%s: %s", args, r.Err)
		require.Contains(t, r.Out, want, args)
	}
}

// What a script or a person gets wrong easily is refused, with what would be right.
func TestMistakes(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for want, c := range map[string]struct {
		code int
		args []string
	}{
		"etcdkit limit: N is empty": {exit.Usage, []string{"limit", "semaphore/x", ""}}, // the variable of a script
		"etcdkit run: mutex/a: the name is given without its kind: --lock a\n":                   {exit.Usage, []string{"run", "mutex/a", "--", "true"}},
		"etcdkit hold: semaphore/a: the name is given without its kind: --limit a\n":             {exit.Usage, []string{"hold", "semaphore/a", "--id", "x", "--for", "1m"}},
		"etcdkit run: limiter/a: a limiter has no permit to acquire here":                        {exit.Usage, []string{"run", "limiter/a", "--", "true"}},
		"etcdkit show: semaphore/chrage: etcd has nothing of that name":                          {exit.Failed, []string{"show", "semaphore/chrage"}},
		"etcdkit show: limiter/api: etcd has nothing of that name":                               {exit.Failed, []string{"show", "limiter/api"}},
		"etcdkit jobs watch: read status of job \"invoices\": no such job\n'etcdkit jobs' lists": {exit.Failed, []string{"jobs", "watch", "invoices"}},
		"etcdkit limit: set rate of \"mail\": ":                                                  {exit.Usage, []string{"limit", "rate/mail", "0", "--create"}},
		"'etcdkit limit KIND/NAME N --create' stores a limit for a new one.":                     {exit.Failed, []string{"limit", "semaphore/x", "3"}},
		"etcdkit conformance: --duration 0s is not positive":                                     {exit.Usage, []string{"conformance", "--duration", "0", "--yes"}},
		"etcdkit conformance: --only is empty":                                                   {exit.Usage, []string{"conformance", "--only", "", "--yes"}},
		"etcdkit doctor: --slow -1s is not positive":                                             {exit.Usage, []string{"doctor", "--slow", "-1s"}},
		"etcdkit requests resolve: --done: /dev/zero has more than 1048576 bytes":                {exit.Usage, []string{"requests", "resolve", "orders", "x/y", "--done", "/dev/zero", "--yes"}},
		"etcdkit requests resolve: --done -: it is empty":                                        {exit.Usage, []string{"requests", "resolve", "orders", "x/y", "--done", "-", "--yes"}},
		"etcdkit help: \"nosuch\" is no verb":                                                    {exit.Usage, []string{"help", "nosuch"}},
	} {
		args := c.args
		if args[0] != "help" {
			args = append([]string{"-N", "test"}, args...)
		}
		r := f.Run(args...)
		require.Equal(t, c.code, r.Code, "%v: %s", c.args, r.Err)
		require.Contains(t, r.Err, want)
		require.NotContains(t, r.Err, "CreateLimit")
	}
	require.Contains(t, f.Run("help", "jobs", "watch").Out, "Print each run of a job")
}
