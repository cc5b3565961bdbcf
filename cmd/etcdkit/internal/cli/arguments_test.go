package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// What is missing is named as the usage calls it.
func TestArguments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for want, args := range map[string][]string{
		"etcdkit show: NAME is missing\n":              {"show"},
		`etcdkit ls: "charge" is an argument too many`: {"ls", "charge"},
		"etcdkit evict: TOKEN is missing\n":            {"evict", "charge", "--reason", "x"},
		"etcdkit run: NAME is missing\n":               {"run", "--", "true"},
		"etcdkit run: COMMAND is missing\n":            {"run", "charge"},
		"etcdkit run: COMMAND is missing \n":           {"run", "charge", "--"},
		`etcdkit limit: "5" is an argument too many`:   {"limit", "charge", "4", "5"},
		"etcdkit requests get: REF is missing\n":       {"requests", "get", "orders"},
	} {
		r := f.run(args...)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, strings.ReplaceAll(want, " \n", "\n"))
		require.Contains(t, r.err, "Usage: etcdkit "+args[0])
	}
}

// A name may begin with "-": it follows "--".
func TestNamesThatBeginWithADash(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.session("web-7")
	l, err := schedlock.New(s, nil)
	require.NoError(t, err)
	_, err = l.Do(testkit.Context(t), "-n", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	store, err := idempotency.NewStore(s, "-st", nil)
	require.NoError(t, err)
	f.begin(store, order("1"))
	q, err := concurrency.NewSemaphore(s, "-q", 1, nil)
	require.NoError(t, err)
	f.permit(q.Acquire(testkit.Context(t)))
	for args, want := range map[string]string{
		"jobs pause --reason x -- -n": "paused",
		"jobs history -- -n":          "done",
		"requests stats -- -st":       "in-progress       1",
		"show -- -q":                  "used 1",
	} {
		r := f.run(append([]string{"-N", "test"}, strings.Fields(args)...)...)
		require.Zero(t, r.code, "%s: %s", args, r.err)
		require.Contains(t, r.out, want, args)
	}
}

// What a script or a person gets wrong easily is refused, with what would be right.
func TestMistakes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for want, c := range map[string]struct {
		code int
		args []string
	}{
		"etcdkit limit: N is empty": {exitUsage, []string{"limit", "semaphore/x", ""}}, // the variable of a script
		"etcdkit run: mutex/a: the name is given without its kind: --lock a\n":                   {exitUsage, []string{"run", "mutex/a", "--", "true"}},
		"etcdkit hold: semaphore/a: the name is given without its kind: --limit a\n":             {exitUsage, []string{"hold", "semaphore/a", "--id", "x", "--for", "1m"}},
		"etcdkit run: limiter/a: a limiter has no permit to acquire here":                        {exitUsage, []string{"run", "limiter/a", "--", "true"}},
		"etcdkit show: semaphore/chrage: etcd has nothing of that name":                          {exitFailed, []string{"show", "semaphore/chrage"}},
		"etcdkit show: limiter/api: etcd has nothing of that name":                               {exitFailed, []string{"show", "limiter/api"}},
		"etcdkit jobs watch: read status of job \"invoices\": no such job\n'etcdkit jobs' lists": {exitFailed, []string{"jobs", "watch", "invoices"}},
		"etcdkit limit: set rate of \"mail\": ":                                                  {exitUsage, []string{"limit", "rate/mail", "0", "--create"}},
		"'etcdkit limit KIND/NAME N --create' stores a limit for a new one.":                     {exitFailed, []string{"limit", "semaphore/x", "3"}},
		"etcdkit conformance: --duration 0s is not positive":                                     {exitUsage, []string{"conformance", "--duration", "0", "--yes"}},
		"etcdkit conformance: --only is empty":                                                   {exitUsage, []string{"conformance", "--only", "", "--yes"}},
		"etcdkit doctor: --slow -1s is not positive":                                             {exitUsage, []string{"doctor", "--slow", "-1s"}},
		"etcdkit requests resolve: --done: /dev/zero has more than 1048576 bytes":                {exitUsage, []string{"requests", "resolve", "orders", "x/y", "--done", "/dev/zero", "--yes"}},
		"etcdkit requests resolve: --done -: it is empty":                                        {exitUsage, []string{"requests", "resolve", "orders", "x/y", "--done", "-", "--yes"}},
		"etcdkit help: \"nosuch\" is no verb":                                                    {exitUsage, []string{"help", "nosuch"}},
	} {
		args := c.args
		if args[0] != "help" {
			args = append([]string{"-N", "test"}, args...)
		}
		r := f.run(args...)
		require.Equal(t, c.code, r.code, "%v: %s", c.args, r.err)
		require.Contains(t, r.err, want)
		require.NotContains(t, r.err, "CreateLimit")
	}
	require.Contains(t, f.run("help", "jobs", "watch").out, "Print each run of a job")
}
