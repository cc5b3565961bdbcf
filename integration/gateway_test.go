package integration

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// The table of statuses in docs/integrations.md is what the real gateway answers, without and with the options
// of the example.
func TestGatewayStatuses(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/integrations.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "| reasons | code |")
	require.True(t, found)
	reasons := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || strings.Contains(line, "status") || strings.Contains(line, "---") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		var code codes.Code
		require.NoError(t, code.UnmarshalJSON([]byte(strconv.Quote(cells[2]))), line)
		for reason := range strings.SplitSeq(cells[1], ", ") {
			reasons++
			st, err := status.New(code, "refused").WithDetails(
				&errdetails.ErrorInfo{Domain: idemgrpc.Domain, Reason: reason}, &errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: 2, Nanos: 1}})
			require.NoError(t, err)
			answer := func(opts ...runtime.ServeMuxOption) *httptest.ResponseRecorder {
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
				mux := runtime.NewServeMux(opts...)
				_, out := runtime.MarshalerForRequest(mux, r)
				runtime.HTTPError(t.Context(), mux, out, w, r, st.Err())
				return w
			}
			bare, mended := answer(), answer(gatewayOptions()...)
			require.Equal(t, cells[3], strconv.Itoa(bare.Code), line)
			require.Empty(t, bare.Header().Get("Retry-After"))
			require.Equal(t, cells[4], strconv.Itoa(mended.Code), line)
			require.Equal(t, "3", mended.Header().Get("Retry-After"))
		}
	}
	require.Equal(t, 15, reasons)
}
