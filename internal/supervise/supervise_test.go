package supervise

import (
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
