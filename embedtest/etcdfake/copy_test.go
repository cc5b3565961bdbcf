package etcdfake

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A copy of a message is equal to it, has nothing of what was there before, and keeps it when the message changes: by the
// code of etcd's messages as by gRPC's codec.
func TestCopyInto(t *testing.T) {
	t.Parallel()
	fresh := func() *etcdserverpb.PutRequest {
		return &etcdserverpb.PutRequest{Key: []byte("key"), Value: []byte("value"), Lease: 7}
	}
	for name, copied := range map[string]func(dst, src any){
		"copyInto": func(dst, src any) { copyInto(dst, src) },
		"gRPC's codec": func(dst, src any) {
			size, err := byCodec(dst, src)
			require.NoError(t, err)
			require.Equal(t, copyInto(fresh(), src), size)
		},
	} {
		src, dst := fresh(), &etcdserverpb.PutRequest{Key: []byte("another key"), PrevKv: true}
		copied(dst, src)
		src.Key[0], src.Value[0] = 'x', 'x'
		require.Equal(t, fresh().String(), dst.String(), name)
	}
	c, _ := clone(fresh())
	require.Equal(t, fresh().String(), c.(*etcdserverpb.PutRequest).String()) //nolint:forcetypeassert // of a message of that type
}

// The answers that are copied field by field are copied whole, whatever fields an etcd of another line adds to them, and
// share no memory with the copy.
func TestCopyByHand(t *testing.T) {
	t.Parallel()
	op := func(r any) *etcdserverpb.ResponseOp {
		fill(reflect.ValueOf(r).Elem())
		switch r := r.(type) {
		case *etcdserverpb.RangeResponse:
			return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: r}}
		case *etcdserverpb.PutResponse:
			return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: r}}
		case *etcdserverpb.DeleteRangeResponse:
			return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: r}}
		}
		return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseTxn{ResponseTxn: r.(*etcdserverpb.TxnResponse)}} //nolint:forcetypeassert // the last kind
	}
	txn := &etcdserverpb.TxnResponse{}
	fill(reflect.ValueOf(txn).Elem())
	inner := op(&etcdserverpb.TxnResponse{})
	txn.Responses = []*etcdserverpb.ResponseOp{
		op(&etcdserverpb.RangeResponse{}), op(&etcdserverpb.PutResponse{}), op(&etcdserverpb.DeleteRangeResponse{}), inner, {},
		{Response: &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: &etcdserverpb.PutResponse{}}},
	}
	read, watch := &etcdserverpb.RangeResponse{}, &etcdserverpb.WatchResponse{}
	fill(reflect.ValueOf(read).Elem())
	fill(reflect.ValueOf(watch).Elem())
	for _, src := range []any{read, watch, txn, &etcdserverpb.RangeResponse{}, &etcdserverpb.WatchResponse{}, &etcdserverpb.TxnResponse{}} {
		byHandCopy, codecs := reflect.New(reflect.TypeOf(src).Elem()).Interface(), reflect.New(reflect.TypeOf(src).Elem()).Interface()
		fill(reflect.ValueOf(byHandCopy).Elem()) // of which nothing is left
		require.True(t, byHand(byHandCopy, src))
		_, err := byCodec(codecs, src)
		require.NoError(t, err)
		was := fmt.Sprint(codecs)
		require.Equal(t, was, fmt.Sprint(byHandCopy), "%T", src)
		spoil(reflect.ValueOf(src))
		require.Equal(t, was, fmt.Sprint(byHandCopy), "%T: the copy shares memory", src)
	}
}

// fill sets every field of a message that is exported, and of those in it, except the kinds of an operation.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !strings.HasPrefix(f.Name, "XXX_") && f.Type != reflect.TypeFor[[]*etcdserverpb.ResponseOp]() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(7)
	case reflect.Int32:
		v.SetInt(1) // of an enumeration
	case reflect.Int64:
		v.SetInt(8)
	default:
		panic(v.Type())
	}
}

// spoil changes all memory that a message reaches.
func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			spoil(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !strings.HasPrefix(f.Name, "XXX_") {
				spoil(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoil(v.Index(i))
		}
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(9)
	case reflect.Int64:
		v.SetInt(9)
	default:
	}
}

// What a client has put stays as it was when its memory changes, at once and while the request is on its way.
func TestPutKeepsItsValue(t *testing.T) {
	t.Parallel()
	s := New(t)
	c := s.NewClient()
	raw := etcdserverpb.NewKVClient(c.ActiveConnection())
	value := []byte("value")
	r := &etcdserverpb.PutRequest{Key: []byte("key"), Value: value}
	_, err := raw.Put(t.Context(), r)
	require.NoError(t, err)
	value[0] = 'x'
	get, err := c.Get(t.Context(), "key")
	require.NoError(t, err)
	require.Equal(t, "value", string(get.Kvs[0].Value))
	get.Kvs[0].Value[0] = 'y'
	get, err = c.Get(t.Context(), "key")
	require.NoError(t, err)
	require.Equal(t, "value", string(get.Kvs[0].Value), "an answer is of its own memory")

	c.Inject(func(Message) Fault { return Fault{Err: ErrUnavailable, RequestDelay: 20 * time.Millisecond} })
	value[0] = 'v'
	r.Key = []byte("late")
	_, err = raw.Put(t.Context(), r)
	require.Error(t, err)
	value[0] = 'x'
	c.Inject(nil)
	require.Eventually(t, func() bool {
		get, err = c.Get(t.Context(), "late")
		return err == nil && len(get.Kvs) == 1
	}, time.Minute, time.Millisecond)
	require.Equal(t, "value", string(get.Kvs[0].Value))
}
