package commit

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// PutBeside puts if key has that create revision, and reports whether it has put. It repeats
// until the outcome is known. It returns an error of etcd's that repeating would not change,
// or ctx's error; then the put may be done or not. After a lost response it may put twice.
func PutBeside(ctx context.Context, kv clientv3.KV, key string, token int64, put clientv3.Op) (bool, error) {
	resp, _, err := again(ctx, kv, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", token)}, []clientv3.Op{put}, nil)
	if err != nil && classify(err) == orphaned {
		return false, nil
	}
	return err == nil && resp.Succeeded, err
}
