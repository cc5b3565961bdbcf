package rpc

import (
	"bytes"
	"encoding/json"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// SaysUnknown reports whether a status is a middleware's own answer that the outcome is unknown. That is no final one:
// an operator resolves it.
func SaysUnknown(st *Status) bool { return saysUnknown(st.Proto()) }

// ReasonInJSON returns the reason of a middleware's own answer within the JSON of a status, as grpc-gateway writes it, or "".
func ReasonInJSON(b []byte) middleware.Reason {
	var st struct {
		Details []struct{ Domain, Reason string }
	}
	if !bytes.Contains(b, []byte(Domain)) || json.Unmarshal(b, &st) != nil {
		return ""
	}
	for _, d := range st.Details {
		for reason, a := range answers {
			if d.Domain == Domain && d.Reason == a.reason {
				return reason
			}
		}
	}
	return ""
}

// EncodedSaysUnknown is SaysUnknown for what Encode returns.
func EncodedSaysUnknown(b []byte) bool {
	var st spb.Status
	return proto.Unmarshal(b, &st) == nil && saysUnknown(&st)
}

func saysUnknown(st *spb.Status) bool {
	for _, d := range st.GetDetails() {
		if _, name, _ := strings.Cut(d.GetTypeUrl(), "/"); DetailSaysUnknown(name, d.GetValue()) {
			return true
		}
	}
	return false
}

// DetailSaysUnknown is SaysUnknown for one detail, of a type by its name.
func DetailSaysUnknown(name string, value []byte) bool {
	var info errdetails.ErrorInfo
	return name == string(info.ProtoReflect().Descriptor().FullName()) && proto.Unmarshal(value, &info) == nil &&
		info.GetDomain() == Domain && info.GetReason() == answers[middleware.Unknown].reason
}
