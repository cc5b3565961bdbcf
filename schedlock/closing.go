package schedlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// givenUpAtOnce is the number of settings in one Txn: etcd bounds its operations.
const givenUpAtOnce = 100

// giveUpSettings removes the settings that this process has stored, of jobs without an active run, when Close begins and has
// to wait for the run of another job. No claim of theirs is sent here any more, also not by a call within that run: a claim is no part
// of work. A process of another release would be refused for as long as that run lasts.
func giveUpSettings(ctx context.Context, l *Locker) {
	var gone []clientv3.Op
	busy, lease := false, l.sess.Lease()
	for _, j := range l.jobs.all() {
		if j.running() {
			busy = true
			continue
		}
		key := j.keys.Settings()
		gone = append(gone, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue(key), "=", lease)}, []clientv3.Op{clientv3.OpDelete(key)}, nil))
	}
	for busy && len(gone) > 0 {
		some := gone[:min(len(gone), givenUpAtOnce)]
		gone = gone[len(some):]
		_, _ = repeat(ctx, l.etcd, func(call context.Context) (*clientv3.TxnResponse, error) {
			return l.client.Txn(call).Then(some...).Commit()
		})
	}
}
