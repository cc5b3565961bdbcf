package supervise

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMethod(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]bool{
		"/grpc.health.v1.Health/Check":                                   true,
		"/grpc.health.v1.Health/Watch":                                   true,
		"/grpc.health.v1.Health/List":                                    true,
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      true,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": true,
		"grpc.health.v1.Health/Check":                                    true,
		"/grpc.lb.v1.LoadBalancer/BalanceLoad":                           false,
		"/grpc.healthy.Work/Do":                                          false,
		"/acme.grpc.health.v1.Health/Check":                              false,
		"/test.Work/Work":                                                false,
		"":                                                               false,
	} {
		require.Equal(t, want, Method(method), method)
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	const check = "/grpc.health.v1.Health/Check"
	for name, c := range map[string]struct {
		path   string
		header http.Header
		want   bool
	}{
		"gRPC":                  {check, http.Header{"Content-Type": {"application/grpc"}}, true},
		"gRPC of a codec":       {check, http.Header{"Content-Type": {"application/grpc+proto"}}, true},
		"gRPC-Web":              {check, http.Header{"Content-Type": {"application/grpc-web-text; charset=utf-8"}}, true},
		"Connect, a stream":     {check, http.Header{"Content-Type": {"application/connect+json"}}, true},
		"Connect, protobuf":     {check, http.Header{"Content-Type": {"application/proto"}}, true},
		"Connect, JSON":         {check, http.Header{"Content-Type": {"application/json"}, "Connect-Protocol-Version": {"1"}}, true},
		"Connect, its deadline": {check, http.Header{"Content-Type": {"application/json"}, "Connect-Timeout-Ms": {"1000"}}, true},
		"plain HTTP":            {check, http.Header{"Content-Type": {"application/json"}}, false},
		"no type":               {check, http.Header{}, false},
		"below the service":     {"/grpc.health.v1.Health/../../api/charge", http.Header{"Content-Type": {"application/grpc"}}, false},
		"no method of it":       {"/grpc.health.v1.Health/Charge", http.Header{"Content-Type": {"application/grpc"}}, false},
		"another method":        {"/test.Work/Work", http.Header{"Content-Type": {"application/grpc"}}, false},
	} {
		require.Equal(t, c.want, Request(c.path, c.header.Get), name)
	}
}
