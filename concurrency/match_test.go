package concurrency_test

import (
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// What embedtest.Fault.Match is given here: the messages that a test strikes.

// txn matches Txns that put or delete a request.
func txn(put bool) func(string, any) bool {
	return func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.TxnRequest)
		if !ok || len(r.Success) == 0 {
			return false
		}
		key := r.Success[0].GetRequestPut().GetKey()
		if !put {
			key = r.Success[0].GetRequestDeleteRange().GetKey()
		}
		return strings.Contains(string(key), "/queue/")
	}
}

// lists matches reads of a whole queue. A session that has just begun also reads what it
// watches of itself, at any moment.
func lists(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.RangeRequest)
	return ok && len(r.RangeEnd) > 0 && !strings.Contains(string(r.Key), "/session/")
}

// listsOf matches reads of all keys of a range with this part.
func listsOf(part string) func(string, any) bool {
	return func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.RangeRequest)
		return ok && len(r.RangeEnd) > 0 && strings.Contains(string(r.Key), part)
	}
}

// eventOn matches responses of watches with an event on a key with this part.
func eventOn(part string) func(string, any) bool {
	return func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.WatchResponse)
		return ok && len(r.Events) > 0 && strings.Contains(string(r.Events[0].Kv.Key), part)
	}
}
