package commit

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// PutBeside puts, if key stands with that create revision, and tells whether it was
// put. It repeats until the outcome is known, an error of etcd's that repeating would
// not change comes, or ctx ends; then it returns an error, and the put may be done or
// not. After a lost answer it may be done twice.
func PutBeside(ctx context.Context, kv clientv3.KV, key string, token int64, put clientv3.Op) (bool, error) {
	resp, _, err := again(ctx, kv, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", token)}, []clientv3.Op{put}, nil)
	switch {
	case err == nil:
		return resp.Succeeded, nil
	case classify(err) == orphaned:
		return false, nil
	}
	return false, err
}
