package stored

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

var recordVersion = flag.String("record", "", "write the records of a full run as those of this version, such as 0.1.0")

// recordsOf is the file with the records of a version.
func recordsOf(version string) string { return filepath.Join("testdata", version, "records.jsonl") }

// TestRecord writes the golden records of a release, once: `make golden-records VERSION=0.1.0`.
func TestRecord(t *testing.T) {
	if *recordVersion == "" {
		t.Skip("it writes golden records only with -record")
	}
	name := recordsOf(*recordVersion)
	require.NoFileExists(t, name, "the records of a release are made once")
	var b strings.Builder
	for _, w := range fullRun(t, own(t)) {
		line, err := json.Marshal(w)
		require.NoError(t, err)
		b.Write(append(line, '\n'))
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755)) //nolint:gosec // a folder of the repository
	require.NoError(t, os.WriteFile(name, []byte(b.String()), 0o644))
}

// golden reads the records of a version.
func golden(t *testing.T, version string) (all []written) {
	t.Helper()
	f, err := os.Open(recordsOf(version))
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var w written
		require.NoError(t, json.Unmarshal(lines.Bytes(), &w))
		all = append(all, w)
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, all)
	return all
}

// reader is a program of this release on what another one has stored.
type reader struct {
	f    testkit.Fixture
	sess *concurrency.Session
	put  map[string]string // what was stored, by key below the namespace
}

// reads puts the live ones of records into an etcd, at their revisions and on leases with their numbers, and returns a program
// that reads them. edit changes their values.
func reads(t *testing.T, all []written, edit func(w written) string) reader {
	t.Helper()
	f, ctx := own(t), testkit.Context(t)
	root := f.Root + "v1/test/"
	r := reader{f: f, put: map[string]string{}}
	all = slices.DeleteFunc(slices.Clone(all), func(w written) bool { return !w.Live })
	slices.SortStableFunc(all, func(a, b written) int { return cmp.Compare(a.Rev, b.Rev) })
	leases := map[int64]bool{0: true}
	var txn []clientv3.Op
	now, err := f.Revision(ctx)
	require.NoError(t, err)
	for i, w := range all {
		if !leases[w.Lease] {
			_, err := pb.NewLeaseClient(f.Client().ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: w.Lease, TTL: 600})
			require.NoError(t, err)
			leases[w.Lease] = true
		}
		r.put[w.Key] = edit(w)
		txn = append(txn, clientv3.OpPut(root+w.Key, r.put[w.Key], clientv3.WithLease(clientv3.LeaseID(w.Lease))))
		if i+1 < len(all) && all[i+1].Rev == w.Rev {
			continue // one Txn has put both
		}
		for ; now < w.Rev-1; now++ { // tokens in values are revisions
			_, err := f.Client().Put(ctx, "/passes", "")
			require.NoError(t, err)
		}
		resp, err := f.Client().Txn(ctx).Then(txn...).Commit()
		require.NoError(t, err)
		require.Equal(t, w.Rev, resp.Header.Revision)
		now, txn = resp.Header.Revision, nil
	}
	r.sess = f.SessionOn(f.Client(), &concurrency.SessionOptions{Owner: "web-9", TTL: 5 * time.Minute})
	return r
}

// asStored leaves a value as it is.
func asStored(w written) string { return w.Value }

// line changes the first line of a value, which is a record; other values stay.
func line(value string, change func(record string) string) string {
	record, body, more := strings.Cut(value, "\n")
	if !strings.HasPrefix(record, `{"v":1`) {
		return value
	}
	record = change(record)
	if more {
		record += "\n" + body
	}
	return record
}

// withFields is the value as a later release may write it in the same version: with fields that this one does not know.
func withFields(w written) string {
	return line(w.Value, func(record string) string {
		return strings.TrimSuffix(record, "}") + `,"later":{"of":["a","release"]},"kind":7}`
	})
}

// ofVersion2 is the value of a later release that this one cannot read.
func ofVersion2(w written) string {
	return line(w.Value, func(record string) string {
		return `{"v":2` + strings.TrimPrefix(record, `{"v":1`)
	})
}

// A195: this release reads what 0.1.0 has stored. From the release of 0.1.0 on this test and its records are never changed:
// see testdata/README.md.
func TestReads010(t *testing.T) {
	t.Parallel()
	decodes(t, golden(t, "0.1.0"), asStored)
	understands(t, reads(t, golden(t, "0.1.0"), asStored))
}

// A195: 0.1.0 reads what a later release stores with fields that 0.1.0 does not know.
func TestReadsFieldsOfLaterReleases(t *testing.T) {
	t.Parallel()
	decodes(t, golden(t, "0.1.0"), withFields)
	r := reads(t, golden(t, "0.1.0"), withFields)
	require.Contains(t, r.put["semaphore/charge/limit"], `"kind":7}`)
	understands(t, r)
}
