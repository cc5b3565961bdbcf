package record

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestGolden holds the stored form still: releases share a fleet during every
// rolling deploy. A line here is changed only together with the version.
func TestGolden(t *testing.T) {
	golden := map[string]string{
		Request{Nonce: "n", Owner: "h", ID: "i", Note: "x", AtMS: 7}.Encode():                          `{"v":1,"nonce":"n","owner":"h","id":"i","note":"x","at":7}`,
		Request{Nonce: "n", AtMS: 7, MaxHoldMS: 1500}.Encode():                                         `{"v":1,"nonce":"n","at":7,"max_hold_ms":1500}`,
		Limit{Limit: 3, Nonce: "n", AtMS: 7, Rate: Rate{PerSecond: 0.1, Burst: 3}}.Encode():            `{"v":1,"limit":3,"nonce":"n","at":7,"rate":{"per_second":0.1,"burst":3}}`,
		Limit{Limit: 3, Nonce: "n", By: "b", AtMS: 7, Through: 9, Previous: 2, Settled: true}.Encode(): `{"v":1,"limit":3,"nonce":"n","by":"b","at":7,"through":9,"previous":2,"settled":true}`,
		Tokens{Left: 0.5, Lease: 5, TTL: 7, AtMS: 9}.Encode():                                          `{"v":1,"left":0.5,"lease":5,"ttl":7,"at":9}`,
		Tokens{Lease: 5, TTL: 7, GraceMS: 15000, By: "b", AtMS: 9}.Encode():                            `{"v":1,"left":0,"lease":5,"ttl":7,"grace_ms":15000,"by":"b","at":9}`,
		ID{Slot: "s", Owner: "h", Lease: 5}.Encode():                                                   `{"v":1,"slot":"s","owner":"h","lease":5}`,
		Session{Owner: "h", AtMS: 7}.Encode():                                                          `{"v":1,"owner":"h","at":7}`,
		Session{Owner: "h", ID: "i", AtMS: 7}.Encode():                                                 `{"v":1,"owner":"h","id":"i","at":7}`,
		Notice{Cause: CauseEvicted, Reason: "r", By: "b"}.Encode():                                     `{"v":1,"cause":"evicted","reason":"r","by":"b"}`,
		Notice{Cause: CauseStop, By: "b"}.Encode():                                                     `{"v":1,"cause":"stop","by":"b"}`,
	}
	for got, want := range golden {
		require.Equal(t, want, got)
	}
}

// TestRequestByHand holds the encoding that is put together by hand to what
// encoding/json makes of the same record.
func TestRequestByHand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z<>&"\\\x00-\x1f ]*`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		r := Request{Nonce: text.Draw(t, "nonce"), Owner: text.Draw(t, "holder"), ID: text.Draw(t, "id"), Note: text.Draw(t, "note"), AtMS: rapid.Int64().Draw(t, "at"), MaxHoldMS: rapid.Int64().Draw(t, "max_hold")}
		r.Version = version
		want, err := json.Marshal(r)
		require.NoError(t, err)
		require.Equal(t, string(want), r.Encode())
	})
}

// A bound that no release writes is no bound, and does not overflow.
func TestMaxHoldIsWary(t *testing.T) {
	for ms, want := range map[int64]time.Duration{0: 0, 1500: 1500 * time.Millisecond, -1: 0, math.MaxInt64: 0, math.MinInt64: 0} {
		require.Equal(t, want, Request{MaxHoldMS: ms}.MaxHold(), ms)
	}
	r, ok := DecodeRequest([]byte(`{"v":1,"nonce":"n","at":7}`))
	require.True(t, ok, "there is none")
	require.Zero(t, r.MaxHold())
}

func TestDecodeIsWary(t *testing.T) {
	r, ok := DecodeRequest([]byte(`{"v":1,"nonce":"n","later":"field"}`))
	require.True(t, ok, "unknown fields of later releases are ignored")
	require.Equal(t, "n", r.Nonce)
	for _, bad := range []string{"", "null", "{}", "[]", `"x"`, `{"v":2,"limit":3}`, `{"v":1,"limit":-1}`, `{"v":1,"limit":3000000000}`,
		`{"v":1,"limit":3,"through":-1}`, `{"v":1,"limit":1e99}`, `{"v":1,"limit":3`, `{"v":1,"limit":3,"by":"` + strings.Repeat("x", MaxSize) + `"}`} {
		_, ok := DecodeLimit([]byte(bad))
		require.False(t, ok, "%.60s", bad)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(Request{Nonce: "n"}.Encode()))
	f.Add([]byte(Limit{Limit: 3}.Encode()))
	f.Add([]byte(`{"v":1,"slot":"s","lease":9}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := DecodeLimit(b); ok {
			again, ok := DecodeLimit([]byte(r.Encode()))
			require.True(t, ok)
			require.Equal(t, r, again)
		}
		DecodeRequest(b)
		DecodeID(b)
		DecodeNotice(b)
		if r, ok := DecodeSession(b); ok {
			again, ok := DecodeSession([]byte(r.Encode()))
			require.True(t, ok)
			require.Equal(t, r, again)
		}
	})
}
