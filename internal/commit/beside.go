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
	var pause Backoff
	for {
		call, cancel := Call(ctx)
		resp, err := kv.Txn(call).If(clientv3.Compare(clientv3.CreateRevision(key), "=", token)).Then(put).Commit()
		cancel()
		if err == nil {
			return resp.Succeeded, nil
		}
		switch classify(err) {
		case refused, answered:
			return false, err
		case orphaned:
			return false, nil
		}
		if err := pause.Wait(ctx, err); err != nil {
			return false, err
		}
	}
}
