package idemgrpc_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

func TestOnceAndReplayed(t *testing.T) {
	t.Parallel()
	in := fleet(t, 2, nil)
	a, b := in[0].serve(nil, paid), in[1].serve(nil, paid)
	first := a.pay("k", "cents", 100)
	require.NoError(t, first.err)
	require.False(t, first.replayed)
	for _, s := range []server{a, b, b} {
		re := s.pay("k", "cents", 100)
		require.NoError(t, re.err)
		require.True(t, re.replayed)
		require.True(t, proto.Equal(first.resp, re.resp))
	}
	require.EqualValues(t, 1, a.calls.Load())
	require.Zero(t, b.calls.Load())
}

func TestKeys(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	s := in.serve(&idemgrpc.Options{CheckKey: func(key string) error {
		if key == "weak" {
			return fmt.Errorf("it is weak")
		}
		return nil
	}}, paid)
	refused(t, s.pay("").err, codes.InvalidArgument, idemgrpc.ReasonMissing)
	for _, bad := range []string{strings.Repeat("x", 256), "weak", `"weak"`, `"k`, "a b", `""`} {
		refused(t, s.pay(bad).err, codes.InvalidArgument, idemgrpc.ReasonMalformed)
	}
	two := metadata.AppendToOutgoingContext(ctxT(t), "idempotency-key", "a", "idempotency-key", "a")
	refused(t, s.call(two, message(t)).err, codes.InvalidArgument, idemgrpc.ReasonMalformed)
	require.Zero(t, s.calls.Load())
	require.NoError(t, s.pay(strings.Repeat("x", 255)).err)

	optional := in.serve(&idemgrpc.Options{Optional: true}, paid)
	other := in.serve(&idemgrpc.Options{Methods: func(m string) bool { return m != payMethod }}, paid)
	for range 2 {
		require.False(t, optional.pay("").replayed)
		require.False(t, other.pay("k").replayed)
	}
	require.EqualValues(t, 2, optional.calls.Load())
	require.EqualValues(t, 2, other.calls.Load())
}

// Another message, while the first is in progress and after it; in progress; and waiting.
func TestReusedAndInProgress(t *testing.T) {
	t.Parallel()
	in := fleet(t, 2, nil)
	begun, end := make(chan struct{}), make(chan struct{})
	a := in[0].serve(nil, func(ctx context.Context, req *structpb.Struct) (*structpb.Struct, error) {
		close(begun)
		<-end
		return paid(ctx, req)
	})
	b, waits := in[1].serve(nil, paid), in[1].serve(&idemgrpc.Options{Wait: time.Minute}, paid)
	first := a.later("k", "cents", 100)
	got(t, begun, "a begin")
	for _, s := range []server{a, b} {
		require.False(t, refused(t, s.pay("k", "cents", 200).err, codes.FailedPrecondition, idemgrpc.ReasonReused))
		require.True(t, refused(t, s.pay("k", "cents", 100).err, codes.Aborted, idemgrpc.ReasonInProgress))
	}
	waiting := waits.later("k", "cents", 100)
	close(end)
	require.NoError(t, got(t, first, "the response").err)
	re := got(t, waiting, "a replay")
	require.NoError(t, re.err)
	require.True(t, re.replayed)
	refused(t, b.pay("k", "cents", 200).err, codes.FailedPrecondition, idemgrpc.ReasonReused)
	require.True(t, b.pay("k", "cents", 100).replayed)
	require.Zero(t, b.calls.Load()+waits.calls.Load())
}

// I13: maps of protobuf have no order.
func TestMessageWithMaps(t *testing.T) {
	t.Parallel()
	s := fleet(t, 1, nil)[0].serve(nil, paid)
	var fields []any
	for n := range 50 {
		fields = append(fields, fmt.Sprint("field", n), n)
	}
	require.NoError(t, s.pay("k", fields...).err)
	for range 10 {
		re := s.pay("k", fields...)
		require.NoError(t, re.err)
		require.True(t, re.replayed)
	}
	require.EqualValues(t, 1, s.calls.Load())
}

func TestTenants(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, &idempotency.Options{})[0]
	s := in.serve(&idemgrpc.Options{Scope: func(ctx context.Context) string {
		tenant := strings.Join(metadata.ValueFromIncomingContext(ctx, "tenant"), "")
		if b, err := hex.DecodeString(tenant); err == nil && len(b) > 1 {
			return string(b)
		}
		return tenant
	}}, paid)
	as := func(tenant string, cents int) reply {
		return s.call(metadata.AppendToOutgoingContext(ctxT(t), "idempotency-key", "k", "tenant", tenant), message(t, "cents", cents))
	}
	for _, replayed := range []bool{false, true} {
		require.Equal(t, replayed, as("a", 1).replayed)
		require.Equal(t, replayed, as("b", 2).replayed)
	}
	require.EqualValues(t, 2, s.calls.Load())
	refused(t, as("", 1).err, codes.PermissionDenied, idemgrpc.ReasonScope)
	long := "x" + strings.Repeat("é", 200) // more than a key may have
	for _, replayed := range []bool{false, true} {
		for n, tenant := range []string{long + "a", long + "b"} {
			re := as(hex.EncodeToString([]byte(tenant)), n)
			require.NoError(t, re.err)
			require.Equal(t, replayed, re.replayed)
		}
	}
	_, err := idemgrpc.UnaryServerInterceptor(in.Store, nil)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorContains(t, err, "Options.Scope is nil")
	_, err = idemgrpc.UnaryServerInterceptor(nil, nil)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	_, err = idemgrpc.StreamServerInterceptor(nil, nil)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	scope := func(context.Context) string { return "x" }
	for _, o := range []idemgrpc.Options{{MaxResponse: -1}, {MaxResponse: 9 << 20}, {Wait: -1}, {StoreTimeout: -1}, {Wait: math.MaxInt64}, {StoreTimeout: math.MaxInt64}} {
		o.Scope = scope
		_, err := idemgrpc.UnaryServerInterceptor(in.Store, &o)
		require.ErrorIs(t, err, idempotency.ErrInvalid, "%+v", o)
	}
}

// What a handler refuses for good is refused again, with the details; what may be otherwise
// next time is tried again.
func TestErrors(t *testing.T) {
	t.Parallel()
	in := fleet(t, 2, nil)
	fail := func(_ context.Context, req *structpb.Struct) (*structpb.Struct, error) {
		st, err := status.New(codes.Code(req.GetFields()["code"].GetNumberValue()), "no").WithDetails(&errdetails.LocalizedMessage{Message: "nein"})
		if err != nil {
			return nil, err
		}
		return nil, st.Err()
	}
	a, b := in[0].serve(nil, fail), in[1].serve(nil, fail)
	final := map[codes.Code]bool{codes.InvalidArgument: true, codes.NotFound: true, codes.AlreadyExists: true, codes.FailedPrecondition: true, codes.OutOfRange: true}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		first := a.pay(fmt.Sprint("k", code), "code", int(code))
		require.Equal(t, code, status.Code(first.err))
		again := b.pay(fmt.Sprint("k", code), "code", int(code))
		require.Equal(t, final[code], again.replayed, code)
		require.True(t, proto.Equal(status.Convert(first.err).Proto(), status.Convert(again.err).Proto()), code)
	}
	require.EqualValues(t, 16, a.calls.Load())
	require.EqualValues(t, 11, b.calls.Load())

	all := in[0].serve(&idemgrpc.Options{OnCode: func(codes.Code) idempotency.Action { return idempotency.Remember }}, fail)
	all.pay("k", "code", int(codes.Internal))
	require.True(t, all.pay("k", "code", int(codes.Internal)).replayed)
	table := in[0].serve(&idemgrpc.Options{OnCode: func(code codes.Code) idempotency.Action {
		return map[codes.Code]idempotency.Action{codes.Internal: idempotency.Remember}[code]
	}}, fail)
	for code, kept := range map[codes.Code]bool{codes.Internal: true, codes.NotFound: true, codes.Aborted: false} {
		table.pay(fmt.Sprint("table", code), "code", int(code))
		require.Equal(t, kept, table.pay(fmt.Sprint("table", code), "code", int(code)).replayed, code)
	}
	plain := in[0].serve(&idemgrpc.Options{OnCode: func(codes.Code) idempotency.Action { return idempotency.Remember }}, func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
		return nil, context.DeadlineExceeded // no status of gRPC
	})
	first := plain.pay("k2")
	require.Equal(t, status.Convert(first.err).Message(), status.Convert(plain.pay("k2").err).Message())
	require.EqualValues(t, 1, plain.calls.Load())
}

// If the client cancels, the handler continues, and its outcome is recorded.
func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	begun := make(chan struct{})
	s := in.serve(nil, func(ctx context.Context, req *structpb.Struct) (*structpb.Struct, error) {
		close(begun)
		<-idemgrpc.Client(ctx).Done()
		require.NoError(t, ctx.Err())
		_, ok := ctx.Deadline()
		require.False(t, ok)
		return paid(ctx, req)
	})
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctxT(t), "idempotency-key", "k"))
	left := make(chan reply, 1)
	go func() { left <- s.call(ctx, message(t)) }()
	got(t, begun, "a begin")
	cancel()
	require.Equal(t, codes.Canceled, status.Code(got(t, left, "an end").err))
	require.Eventually(t, func() bool { return s.pay("k").replayed }, soon, 5*time.Millisecond)
	require.EqualValues(t, 1, s.calls.Load())
	require.Equal(t, t.Context(), idemgrpc.Client(t.Context()))
}

func TestEtcdIsAway(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	short := idemgrpc.Options{StoreTimeout: 300 * time.Millisecond}
	var reported atomic.Int64
	short.ReportError = func(context.Context, string, error) { reported.Add(1) }
	s, away := in.serve(nil, paid), in.serve(&short, paid)
	open := short
	open.FailOpen = true
	fails := in.serve(&open, paid)
	require.NoError(t, s.pay("before").err)
	in.client.Cut()
	require.True(t, s.pay("before").replayed)
	require.True(t, refused(t, away.pay("k").err, codes.Unavailable, idemgrpc.ReasonUnavailable))
	require.EqualValues(t, 1, reported.Load())
	require.Zero(t, away.calls.Load())
	require.NoError(t, fails.pay("k").err)
	in.client.Heal()
	require.Eventually(t, func() bool { return s.pay("k").err == nil }, soon, 10*time.Millisecond)
}

// FailOpen is for clients that are there.
func TestFailOpenWithoutAClient(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	in.client.Cut()
	ctx, cancel := context.WithCancel(metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "k")))
	intercept := in.unary(&idemgrpc.Options{FailOpen: true, Payload: func(context.Context, string, any) (any, error) {
		cancel()
		return nil, nil
	}})
	_, err := intercept(ctx, message(t), &grpc.UnaryServerInfo{FullMethod: payMethod}, func(context.Context, any) (any, error) {
		t.Error("the handler runs")
		return nil, nil
	})
	require.Equal(t, codes.Canceled, status.Code(err))
}

func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse, MaxExecution: 50 * time.Millisecond})[0]
	var at atomic.Pointer[idempotency.Attempt]
	reported := make(chan error, 10)
	opts := &idemgrpc.Options{ReportError: func(_ context.Context, _ string, err error) {
		if errors.Is(err, idempotency.ErrUnknown) {
			reported <- err
		}
	}}
	s := in.serve(opts, func(ctx context.Context, _ *structpb.Struct) (*structpb.Struct, error) {
		a, ok := idempotency.FromContext(ctx)
		require.True(t, ok)
		at.Store(a)
		<-ctx.Done()
		return nil, status.Error(codes.InvalidArgument, "interrupted")
	})
	require.False(t, refused(t, s.pay("k").err, codes.FailedPrecondition, idemgrpc.ReasonUnknown), "not what an interrupted handler says")
	err := s.pay("k").err
	require.False(t, refused(t, err, codes.FailedPrecondition, idemgrpc.ReasonUnknown))
	ref := in.Ref(at.Load().Key())
	require.Equal(t, string(ref), refOf(err), "by which an operator finds the record")
	require.ErrorIs(t, got(t, reported, "the unknown outcome"), idempotency.ErrUnknown)
	require.EqualValues(t, 1, s.calls.Load())
	require.NoError(t, in.Resolve(ctxT(t), ref, idempotency.HasFailed("declined")))
	refused(t, s.pay("k").err, codes.FailedPrecondition, idemgrpc.ReasonFailed)
}

// If a condition of the handler's attempt is not met, its operations are not done. The status does not
// deny the other effects of the handler.
func TestConflict(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	s := in.serve(nil, func(ctx context.Context, req *structpb.Struct) (*structpb.Struct, error) {
		a, _ := idempotency.FromContext(ctx)
		a.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("/no/such/key"), ">", 0)})
		return paid(ctx, req)
	})
	err := s.pay("k").err
	require.True(t, refused(t, err, codes.Aborted, idemgrpc.ReasonConflict))
	require.EqualValues(t, 1, s.calls.Load())
	require.ErrorContains(t, err, "the call has executed, and what it was to write together with its outcome was not written")
	require.NotContains(t, err.Error(), "operator")
}

// V27: as idemhttp.TestConflictUnderRefuse.
func TestConflictUnderRefuse(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})[0]
	s := in.serve(nil, func(ctx context.Context, req *structpb.Struct) (*structpb.Struct, error) {
		a, _ := idempotency.FromContext(ctx)
		a.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("/no/such/key"), ">", 0)})
		return paid(ctx, req)
	})
	err := s.pay("k").err
	require.False(t, refused(t, err, codes.Aborted, idemgrpc.ReasonConflict), "no RetryInfo")
	require.ErrorContains(t, err, "until an operator has resolved it")
	again := s.pay("k").err
	refused(t, again, codes.FailedPrecondition, idemgrpc.ReasonUnknown)
	require.Equal(t, metadataOf(again)[idemgrpc.MetadataRef], metadataOf(err)[idemgrpc.MetadataRef])
}

// Operations that etcd does not take: nothing is recorded, and the client does not learn
// that all is well.
func TestRefusedOperations(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})[0]
	s := in.serve(nil, func(ctx context.Context, req *structpb.Struct) (*structpb.Struct, error) {
		a, _ := idempotency.FromContext(ctx)
		a.Attach(nil, clientv3.OpPut("/one", "1"), clientv3.OpPut("/one", "2"))
		return paid(ctx, req)
	})
	require.False(t, refused(t, s.pay("k").err, codes.Internal, idemgrpc.ReasonInternal))
	require.False(t, refused(t, s.pay("k").err, codes.FailedPrecondition, idemgrpc.ReasonUnknown))
	require.EqualValues(t, 1, s.calls.Load())
}

// A response that is too large is the first client's; it is not made again.
func TestLargeResponse(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	s := in.serve(&idemgrpc.Options{MaxResponse: 1000}, func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
		return structpb.NewStruct(map[string]any{"x": strings.Repeat("x", 1000)})
	})
	require.NoError(t, s.pay("k").err)
	refused(t, s.pay("k").err, codes.FailedPrecondition, idemgrpc.ReasonNotKept)
	require.EqualValues(t, 1, s.calls.Load())
}

// Streams are refused unless PassStreams is set.
func TestStreams(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	watch := func(s server) error {
		st, err := s.conn.NewStream(ctxT(t), &grpc.StreamDesc{ServerStreams: true}, watchMethod)
		require.NoError(t, err)
		require.NoError(t, st.SendMsg(message(t)))
		require.NoError(t, st.CloseSend())
		return st.RecvMsg(message(t))
	}
	s := in.serve(nil, paid)
	refused(t, watch(s), codes.Unimplemented, idemgrpc.ReasonStream)
	require.Zero(t, s.calls.Load())
	for _, o := range []idemgrpc.Options{{PassStreams: true}, {Methods: func(m string) bool { return m == payMethod }}} {
		s := in.serve(&o, paid)
		require.ErrorContains(t, watch(s), "EOF")
		require.EqualValues(t, 1, s.calls.Load())
	}
}

// The client's half: a key for each call, the same for what is sent again.
func TestClientInterceptor(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	seen := make(chan string, 10)
	s := in.serve(nil, func(ctx context.Context, req *structpb.Struct) (*structpb.Struct, error) {
		seen <- strings.Join(metadata.ValueFromIncomingContext(ctx, "idempotency-key"), "|")
		if req.GetFields()["flaky"] != nil && len(seen) == 1 {
			return nil, status.Error(codes.Unavailable, "once more")
		}
		return paid(ctx, req)
	}, grpc.WithUnaryInterceptor(idemgrpc.UnaryClientInterceptor(nil)), grpc.WithDefaultServiceConfig(
		`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`))
	require.NoError(t, s.pay("", "flaky", true).err)
	first, second := <-seen, <-seen
	require.Equal(t, first, second)
	require.Len(t, first, 26)

	require.NoError(t, s.pay("").err)
	require.NotEqual(t, first, <-seen)
	require.NoError(t, s.pay("mine").err)
	require.Equal(t, "mine", <-seen)

	ctx := idemgrpc.WithNewKey(ctxT(t))
	require.False(t, s.call(ctx, message(t)).replayed)
	require.True(t, s.call(ctx, message(t)).replayed)
	own, ok := idemgrpc.KeyOf(ctx)
	require.True(t, ok)
	require.Equal(t, own, <-seen)
	refused(t, s.call(idemgrpc.WithKey(ctx, ""), message(t)).err, codes.InvalidArgument, idemgrpc.ReasonMalformed)

	none := in.serve(nil, paid, grpc.WithUnaryInterceptor(idemgrpc.UnaryClientInterceptor(func(m string) bool { return m != payMethod })))
	refused(t, none.pay("").err, codes.InvalidArgument, idemgrpc.ReasonMissing)
}
