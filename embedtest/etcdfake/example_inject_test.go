package etcdfake_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// etcd applies a Txn, and its answer is lost: a retry must not count twice.
func lostAnswer(t *testing.T, etcd *etcdfake.Server) {
	client, lost := etcd.NewClient(), 0
	client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if m.Method != "Txn" || lost > 0 {
			return etcdfake.Fault{}
		}
		lost++
		return etcdfake.Fault{Err: etcdfake.ErrUnavailable} // the request arrives all the same
	})
	add := func() error { // the code under test
		_, err := client.Txn(t.Context()).If(clientv3.Compare(clientv3.Version("order-17"), "=", 0)).
			Then(clientv3.OpPut("order-17", "paid"), clientv3.OpPut("count", "1")).Commit()
		return err
	}
	if err := add(); err == nil || lost != 1 {
		t.Errorf("the first call returned %v after %d faults", err, lost)
	}
	ok(t, add())
	resp, err := etcd.Client().Get(t.Context(), "count")
	ok(t, err)
	if n := resp.Kvs[0].Version; n != 1 {
		t.Errorf("counted %d times", n)
	}
}

// A Txn that is applied, and whose answer is lost.
func ExampleClient_Inject() {
	example(func(t *testing.T) { // here: func TestLostAnswer(t *testing.T)
		etcdfake.Test(t, lostAnswer)
	})
	// Output: PASS
}
