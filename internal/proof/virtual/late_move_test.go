package virtual

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A283: the write of an outcome takes long, so it is put on a fresh lease, and that is not answered. It is tried again on the
// lease after, and a late copy of the former move, of the record or of a part, arrives first. The outcome is reported as
// recorded, and is kept for the whole of Retain.
func TestLateMoveOfAnOutcome(t *testing.T) {
	const (
		retain  = time.Minute
		slow    = 4500 * time.Millisecond // of the first write: more than a lease has to spare
		leaves  = 5500 * time.Millisecond // the caller of Commit
		next    = 9 * time.Second         // when the lease of the former move is no longer assigned
		arrives = 12 * time.Second        // the late copy
	)
	for name, size := range map[string]int{"record": 1, "part": 300 << 10} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				s := d.storeOf(idempotency.Options{Retain: retain})
				at := started(t, s, order("1"))
				begun, copies := time.Now(), 0
				var first int64 // the revision of the attempt's own record
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					r, ok := m.Body.(*pb.TxnRequest)
					if !ok || len(r.Success) == 0 || len(r.Compare) == 0 {
						return etcdfake.Fault{}
					}
					put, of, since := r.Success[0].GetRequestPut(), r.Compare[0].GetModRevision(), time.Since(begun)
					part := strings.Contains(string(put.GetKey()), "/part/")
					switch record := bytes.Contains(put.GetValue(), []byte(`"done"`)); {
					case part && first == 0:
						first = of
					case record && (first == 0 || of == first) && since < slow:
						first = of
						return etcdfake.Fault{RequestDelay: slow}
					case (part && size > 1 || record && size == 1) && of != first && copies == 0:
						copies++
						if part {
							return etcdfake.Fault{Duplicate: arrives - since, DropResponse: true}
						}
						return etcdfake.Fault{RequestDelay: arrives - since}
					case record && since > slow && since < next:
						if size > 1 && copies == 0 {
							break
						}
						return etcdfake.Fault{DropRequest: true, Err: etcdfake.ErrUnavailable}
					case record && of != first && since < arrives:
						return etcdfake.Fault{RequestDelay: arrives + time.Second - since}
					}
					return etcdfake.Fault{}
				})
				short, cancel := context.WithTimeout(t.Context(), leaves)
				defer cancel()
				require.ErrorIs(t, at.Commit(short, bytes.Repeat([]byte("a"), size)), idempotency.ErrNotRecorded)
				require.Eventually(t, func() bool { return s.Stats().Pending == 0 }, retain, 100*time.Millisecond)
				require.Equal(t, 1, copies)
				require.Greater(t, time.Since(begun), arrives)
				stored := len(d.outcome())
				require.Equal(t, map[bool]int{true: 1, false: 2}[size == 1], stored)
				time.Sleep(retain - time.Second)
				require.Len(t, d.outcome(), stored)
			})
		})
	}
}

// outcome returns the keys of records and of their parts.
func (d *desk) outcome() (keys []string) {
	for _, key := range d.server.Keys("") {
		if strings.Contains(key, "/record/") || strings.Contains(key, "/part/") {
			keys = append(keys, key)
		}
	}
	return keys
}
