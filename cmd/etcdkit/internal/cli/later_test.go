package cli_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/stored"
)

// A393: where the command shows a value, one of a later version is not shown as one that does not exist, and none is
// replaced. A default limit was stored for a limiter whose total cannot be read as for one without a total.
func TestLaterVersions(t *testing.T) {
	t.Parallel()
	f := &clitest.Fixture{T: t, Etcd: embedtest.Start(t, nil), Prefix: "/etcdkit/"}
	if f.Etcd.External() {
		t.Skip("the external cluster is not this test's own")
	}
	is := stored.Put(t, f.Etcd.Client(), "/etcdkit/v1/test/", stored.Records(t, "0.1.0"), stored.OfVersion2)
	for line, says := range map[string]string{
		"show -N test charge":                           "semaphore/charge/limit is of a later release",
		"show -N test limiter/api":                      "limiter/api/total/limit is of a later release",
		"show -N test limiter/api/tenant-7":             "limiter/api/key/tenant-7/limit is of a later release",
		"show -N test rate/mail":                        "rate/mail/limit is of a later release",
		"show -N test -o json charge":                   `"unreadable":"the value of`,
		"show -N test -o json limiter/api":              `"default_unreadable":"the value of`,
		"show -N test -o json rate/mail":                `"unreadable":"the limit in etcd`,
		"limit -N test charge":                          "semaphore/charge/limit is of a later release",
		"limit -N test -o json charge":                  `"unreadable":"the value of`,
		"limit -N test limiter/api":                     "limiter/api/default is of a later release",
		"limit -N test --total limiter/api":             "limiter/api/total/limit is of a later release",
		"limit -N test limiter/api 7":                   "limiter/api/total/limit is of a later release",
		"limit -N test charge 7":                        "semaphore/charge/limit is of a later release",
		"limit -N test rate/mail 7":                     "rate/mail/limit is of a later release",
		"limit -N test limiter/api/k --clear":           "limiter/api/default is of a later release",
		"hold -N test --limit 0 --for 9s --id h charge": "semaphore/charge/limit is of a later release",
		"top -N test":                                   "unreadable",
		"top -N test -o json":                           `"unreadable":"the value of`,
		"jobs -N test":                                  "by a record that cannot be read",
		"requests list -N test orders":                  "unreadable",
		"jobs check -N test nightly --within 1h":        "nightly/run/2026-11-27T08:00:00.000Z is of a later release",
		"ls -N test":                                    "semaphore/charge",
		"elections -N test":                             "ingest",
		"jobs history -N test nightly":                  "unreadable",
	} {
		r := f.Run(clitest.Words(t, line)...)
		all := r.Out + r.Err
		assert.Contains(t, all, says, line)
		for _, absent := range []string{"none stored", "no total", "no rate stored", "no limit", "no process", "has no job", "has no queue", "nothing in etcd", "skipped"} {
			assert.NotContains(t, all, absent, line)
		}
	}
	for key, value := range is {
		resp, err := f.Etcd.Client().Get(t.Context(), "/etcdkit/v1/test/"+key)
		require.NoError(t, err)
		require.Equal(t, value, string(resp.Kvs[0].Value), key)
	}
}
