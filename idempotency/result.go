package idempotency

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/record"
)

// The form in which results are stored.
const (
	inline   = 128 << 10 // up to this they are in the record
	partSize = 1 << 20
)

// settlement is how far the writing of an attempt's end has come. Its owner holds the turn of the record.
type settlement struct {
	end
	a    *Attempt
	ifs  []clientv3.Cmp // attached
	then []clientv3.Op

	alone  bool   // etcd has refused it, and would refuse what is sent together with it
	asked  moment // before the present try to write it
	since  moment // before the first one
	doubt  bool   // a try was not answered: a copy of it may be under way
	denied moment // since when etcd denies what is attached, and would allow the rest; or zero
	gone   bool   // the claim to be abandoned did not exist any more
	fenced bool   // what is at its key then is not the record of this attempt
	large  bool   // the value is too large for one message
	stored []byte
	rec    record.Attempt
	text   []byte           // of rec; nil until it is made
	full   *full            // as it was before its value was left out, if that may have been written
	lease  *pooled          // on which the present try puts it, as the next one does; nil before
	places int              // that it has there
	placed bool             // the record was put there
	partly clientv3.LeaseID // on which parts were put last while the record was as it is, or 0
}

// prepare makes the record of the outcome. It cannot fail: a result that cannot be encoded is left out,
// since the work is done.
func (o *settlement) prepare() (parts [][]byte) {
	if o.text == nil {
		a, codecs := o.a, o.a.store.reader.codecs
		stored, err := codecs.encode(codecs.own, o.value, bound(a.entry))
		o.since, o.stored = o.asked, stored
		o.rec = *a.own.rec
		o.rec.State, o.rec.EndMS, o.rec.Token, o.rec.Error = o.state, time.Now().UnixMilli(), a.token, o.failure
		o.rec.Body, o.rec.Codec = nil, codecs.own
		why, omit := a.store.opts.unstorable(stored, err), o.omit || o.large
		if why != nil && !omit {
			keepNone(a, why)
		}
		switch {
		case why != nil || omit:
			if o.rec.Omitted, o.rec.Codec = true, ""; o.refused != "" { // "done, and not kept" would be taken for a success
				o.rec.State, o.rec.Error = record.AttemptFailed, record.Text(o.refused)
			}
		case len(stored) > inline:
			sum := sha256.Sum256(stored)
			o.rec.Size, o.rec.Sum = len(stored), sum[:]
			o.rec.Parts = (len(stored) + partSize - 1) / partSize
		default:
			o.rec.Size, o.rec.Body = len(stored), stored
		}
		o.text = o.rec.Bytes()
	}
	for n := range o.rec.Parts {
		parts = append(parts, o.stored[n*partSize:min(len(o.stored), (n+1)*partSize)])
	}
	return parts
}

// full is an outcome with its value.
type full struct {
	rec  record.Attempt
	text []byte
}

// wrote reports whether a record is one that the settlement has written.
func (o *settlement) wrote(kv *mvccpb.KeyValue) bool {
	return kv != nil && (bytes.Equal(kv.Value, o.text) || o.full != nil && bytes.Equal(kv.Value, o.full.text))
}

// found takes over the outcome in a record that the settlement has written: that with the value, if etcd has refused only a
// later copy of it.
func (o *settlement) found(kv *mvccpb.KeyValue) (parts [][]byte) {
	if o.full != nil && bytes.Equal(kv.Value, o.full.text) {
		o.rec, o.text, o.full, o.large = o.full.rec, o.full.text, nil, false
	}
	return o.prepare()
}

// leaveOut leaves out a value that is too large for a message of etcd or of the client.
func (o *settlement) leaveOut(err error) (parts [][]byte) {
	if o.doubt {
		o.full = &full{o.rec, o.text}
	}
	keepNone(o.a, fmt.Errorf("%w: %d bytes: %w", errOneMessage, len(o.stored), err))
	o.large, o.text = true, nil
	return o.prepare()
}

// outcome returns what duplicates get after the last try, which has returned err, or nil if nothing is recorded.
func (o *settlement) outcome(err error) *Outcome {
	if err != nil || o.state != record.AttemptDone && o.state != record.AttemptFailed {
		return nil
	}
	rec := o.a.own.rec
	out := &Outcome{Value: o.value, Failed: o.rec.State == record.AttemptFailed, Failure: o.rec.Error, Omitted: o.rec.Omitted,
		Attempt: rec.Number, Token: o.a.token, print: prints{payload: rec.Print, also: rec.Also}}
	if out.Omitted {
		out.Value = nil
	}
	return out
}
