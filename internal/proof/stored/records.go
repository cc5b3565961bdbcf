package stored

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

//go:embed testdata
var folder embed.FS

// Written is one key and value that a full run has put, in the order of etcd.
type Written struct {
	Key   string `json:"key"`            // below the namespace
	Lease int64  `json:"lease,omitzero"` // 0 if it has none
	Rev   int64  `json:"rev"`            // of its last put
	Value string `json:"value"`
	Live  bool   `json:"live"` // it is there at the end of the run
}

// Records returns what a full run of a version, such as 0.1.0, has put.
func Records(t testing.TB, version string) []Written {
	t.Helper()
	b, err := folder.ReadFile(path.Join("testdata", version, "records.jsonl"))
	require.NoError(t, err)
	return decoded(t, b)
}

// decoded returns the records in a file.
func decoded(t testing.TB, b []byte) (all []Written) {
	t.Helper()
	for text := range bytes.Lines(b) {
		var w Written
		require.NoError(t, json.Unmarshal(text, &w))
		all = append(all, w)
	}
	require.NotEmpty(t, all)
	return all
}

// Put puts the live ones of records below the root of a namespace into an etcd of the test's own, at their revisions and on
// leases with their numbers. edit changes their values. It returns what is there, by key below the namespace.
func Put(t testing.TB, client *clientv3.Client, root string, all []Written, edit func(w Written) string) map[string]string {
	t.Helper()
	ctx, is := t.Context(), map[string]string{}
	all = slices.DeleteFunc(slices.Clone(all), func(w Written) bool { return !w.Live })
	slices.SortStableFunc(all, func(a, b Written) int { return cmp.Compare(a.Rev, b.Rev) })
	leases := map[int64]bool{0: true}
	var txn []clientv3.Op
	resp, err := client.Get(ctx, root)
	require.NoError(t, err)
	now := resp.Header.Revision
	for i, w := range all {
		if !leases[w.Lease] {
			_, err := pb.NewLeaseClient(client.ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: w.Lease, TTL: 600})
			require.NoError(t, err)
			leases[w.Lease] = true
		}
		is[w.Key] = edit(w)
		txn = append(txn, clientv3.OpPut(root+w.Key, is[w.Key], clientv3.WithLease(clientv3.LeaseID(w.Lease))))
		if i+1 < len(all) && all[i+1].Rev == w.Rev {
			continue // one Txn has put both
		}
		for ; now < w.Rev-1; now++ { // tokens in values are revisions
			_, err := client.Put(ctx, "/passes", "")
			require.NoError(t, err)
		}
		put, err := client.Txn(ctx).Then(txn...).Commit()
		require.NoError(t, err)
		require.Equal(t, w.Rev, put.Header.Revision)
		now, txn = put.Header.Revision, nil
	}
	return is
}

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

// OfVersion2 is the value of a later release that this one cannot read.
func OfVersion2(w Written) string {
	return line(w.Value, func(record string) string {
		return `{"v":2` + strings.TrimPrefix(record, `{"v":1`)
	})
}
