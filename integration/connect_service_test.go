package integration

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// The procedures of the service, one of each kind.
const (
	payUnary  = "/pay.v1.Payments/Unary"
	payServer = "/pay.v1.Payments/Server" // a server stream
	payClient = "/pay.v1.Payments/Client" // a client stream
	payBidi   = "/pay.v1.Payments/Bidi"
)

// dialects are the protocols and codecs of connect's clients. WithSendGzip makes them compress requests;
// they accept gzip by default.
var dialects = map[string][]connect.ClientOption{
	"Connect":        nil,
	"Connect, JSON":  {connect.WithProtoJSON()},
	"Connect, gzip":  {connect.WithSendGzip()},
	"gRPC":           {connect.WithGRPC()},
	"gRPC, JSON":     {connect.WithGRPC(), connect.WithProtoJSON()},
	"gRPC, gzip":     {connect.WithGRPC(), connect.WithSendGzip()},
	"gRPC-Web":       {connect.WithGRPCWeb()},
	"gRPC-Web, JSON": {connect.WithGRPCWeb(), connect.WithProtoJSON()},
	"gRPC-Web, gzip": {connect.WithGRPCWeb(), connect.WithSendGzip()},
}

// registered adds the service to protobuf's registry, as generated code does.
var registered = sync.OnceValue(func() error {
	service := &descriptorpb.ServiceDescriptorProto{Name: proto.String("Payments")}
	for _, procedure := range []string{payUnary, payServer, payClient, payBidi} {
		service.Method = append(service.Method, &descriptorpb.MethodDescriptorProto{
			Name: proto.String(path.Base(procedure)), InputType: proto.String(".google.protobuf.Struct"), OutputType: proto.String(".google.protobuf.Struct"),
		})
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("pay.proto"), Package: proto.String("pay.v1"), Dependency: []string{"google/protobuf/struct.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{service},
	}, protoregistry.GlobalFiles)
	if err != nil {
		return err
	}
	return protoregistry.GlobalFiles.RegisterFile(file)
})

// connectServer is a service of connect behind the Middleware. The first attempt of a request ends with the
// code that its header names, after it has attached a put of the key own; later ones succeed.
type connectServer struct {
	*httptest.Server
	t     testing.TB
	store *idempotency.Store
	calls atomic.Int64
	own   string
	etcd  *clientv3.Client
	// An attempt with the header Hold says that it has entered, and waits for leave.
	entered, leave chan struct{}
	deadline       atomic.Pointer[time.Time] // of the last attempt
}

func serveConnect(t testing.TB, opts *idemhttp.Options, own ...connect.HandlerOption) *connectServer {
	t.Helper()
	require.NoError(t, registered())
	etcd := embedtest.Shared(t)
	s := &connectServer{t: t, own: etcd.Prefix(t) + "own", etcd: etcd.NewClient(t, nil).Client, entered: make(chan struct{}), leave: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(payUnary, connect.NewUnaryHandler(payUnary, func(ctx context.Context, r *connect.Request[structpb.Struct]) (*connect.Response[structpb.Struct], error) {
		return connect.NewResponse(r.Msg), s.end(ctx, r.Header())
	}, own...))
	mux.Handle(payServer, connect.NewServerStreamHandler(payServer, func(ctx context.Context, r *connect.Request[structpb.Struct], out *connect.ServerStream[structpb.Struct]) error {
		for range 3 {
			if err := out.Send(r.Msg); err != nil {
				return err
			}
		}
		return s.end(ctx, r.Header())
	}, own...))
	mux.Handle(payClient, connect.NewClientStreamHandler(payClient, func(ctx context.Context, in *connect.ClientStream[structpb.Struct]) (*connect.Response[structpb.Struct], error) {
		last := new(structpb.Struct)
		for in.Receive() {
			last = in.Msg()
		}
		return connect.NewResponse(last), errors.Join(in.Err(), s.end(ctx, in.RequestHeader()))
	}, own...))
	mux.Handle(payBidi, connect.NewBidiStreamHandler(payBidi, func(ctx context.Context, both *connect.BidiStream[structpb.Struct, structpb.Struct]) error {
		for {
			m, err := both.Receive()
			if errors.Is(err, io.EOF) {
				return s.end(ctx, both.RequestHeader())
			}
			if err == nil {
				err = both.Send(m)
			}
			if err != nil {
				return err
			}
		}
	}, own...))
	s.store = stores(t)[0]
	s.Server = httptest.NewUnstartedServer(middleware(t, s.store, opts)(mux))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// end returns how an attempt ends.
func (s *connectServer) end(ctx context.Context, h http.Header) error {
	s.calls.Add(1)
	if h.Get("Hold") != "" {
		s.entered <- struct{}{}
		<-s.leave
	}
	until, _ := ctx.Deadline()
	s.deadline.Store(&until)
	a, ok := idempotency.FromContext(ctx)
	if !ok {
		return nil
	}
	a.Attach(nil, clientv3.OpPut(s.own, "written"))
	if code := codeOf(h.Get("Code")); code != 0 && a.Attempt() == 1 {
		return connect.NewError(code, errors.New("the bank says no"))
	}
	return nil
}

// written reports whether what was attached was written, and removes it.
func (s *connectServer) written() bool {
	s.t.Helper()
	resp, err := s.etcd.Delete(ctxT(s.t), s.own)
	require.NoError(s.t, err)
	return resp.Deleted > 0
}

// codeOf returns the code with that name; 0 is OK, which connect has no constant for.
func codeOf(name string) (code connect.Code) {
	_ = code.UnmarshalText([]byte(name))
	return code
}

// call makes a call of a procedure with a key and headers, and returns how many messages came back. The
// message is a map of some fields, of which the header Note is one: connect encodes them in another order each time.
func (s *connectServer) call(procedure, key string, dialect []connect.ClientOption, headers ...string) (messages int, header http.Header, err error) {
	s.t.Helper()
	return s.callIn(ctxT(s.t), procedure, key, dialect, headers...)
}

func (s *connectServer) callIn(ctx context.Context, procedure, key string, dialect []connect.ClientOption, headers ...string) (messages int, header http.Header, err error) {
	s.t.Helper()
	msg, err := structpb.NewStruct(map[string]any{"a": 1, "b": true, "c": "c", "d": nil, "note": strings.Repeat("a message that is worth compressing ", 20)})
	require.NoError(s.t, err)
	client := connect.NewClient[structpb.Struct, structpb.Struct](s.Client(), s.URL+procedure, dialect...)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Note" {
			msg.Fields["note"] = structpb.NewStringValue(headers[i+1])
		}
	}
	set := func(h http.Header) {
		if key != "" {
			h.Set("Idempotency-Key", key)
		}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1][:min(len(headers[i+1]), 64)])
		}
	}
	switch procedure {
	case payUnary:
		r := connect.NewRequest(msg)
		set(r.Header())
		resp, err := client.CallUnary(ctx, r)
		if err != nil {
			return 0, nil, err
		}
		require.Equal(s.t, msg.String(), resp.Msg.String())
		return 1, resp.Header(), nil
	case payServer:
		r := connect.NewRequest(msg)
		set(r.Header())
		in, err := client.CallServerStream(ctx, r)
		if err != nil {
			return 0, nil, err
		}
		defer in.Close()
		for in.Receive() {
			messages++
		}
		return messages, in.ResponseHeader(), in.Err()
	case payClient:
		out := client.CallClientStream(ctx)
		set(out.RequestHeader())
		for range 3 {
			if err := out.Send(msg); err != nil {
				break
			}
		}
		resp, err := out.CloseAndReceive()
		if err != nil {
			return 0, nil, err
		}
		return 1, resp.Header(), nil
	}
	both := client.CallBidiStream(ctx)
	set(both.RequestHeader())
	return s.talk(both, msg)
}

// talk sends three messages, and then receives.
func (s *connectServer) talk(both *connect.BidiStreamForClient[structpb.Struct, structpb.Struct], msg *structpb.Struct) (messages int, header http.Header, err error) {
	s.t.Helper()
	for range 3 {
		if err := both.Send(msg); err != nil {
			break
		}
	}
	require.NoError(s.t, both.CloseRequest())
	defer both.CloseResponse()
	for {
		if _, err := both.Receive(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return messages, both.ResponseHeader(), err
		}
		messages++
	}
}

// reason returns the reason in the ErrorInfo of an answer of the Middleware's own, and the delay of its
// RetryInfo.
func reason(t testing.TB, err error) (reason string, retry time.Duration) {
	t.Helper()
	var ce *connect.Error
	require.ErrorAs(t, err, &ce)
	for _, d := range ce.Details() {
		m, err := d.Value()
		require.NoError(t, err)
		switch m := m.(type) {
		case *errdetails.ErrorInfo:
			require.Equal(t, idemgrpc.Domain, m.GetDomain())
			reason = m.GetReason()
		case *errdetails.RetryInfo:
			retry = m.GetRetryDelay().AsDuration()
		}
	}
	return reason, retry
}

func textOf(err error) string {
	var ce *connect.Error
	if errors.As(err, &ce) {
		return ce.Message()
	}
	return ""
}

// noise returns a text of n bytes that does not compress well.
func noise(n int) string {
	b := make([]byte, n/2)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
