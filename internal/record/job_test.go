package record

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestJobGolden holds the stored form of schedlock's records still, as TestGolden does.
func TestJobGolden(t *testing.T) {
	golden := map[string]string{
		Run{State: RunRunning, Attempt: 1, Owner: "h", Lease: 5, StartMS: 7}.Encode():                                 `{"v":1,"state":"running","attempt":1,"owner":"h","lease":5,"start":7}`,
		Run{State: RunDone, Attempt: 2, Owner: "h", Lease: 5, StartMS: 7, EndMS: 9}.Encode():                          `{"v":1,"state":"done","attempt":2,"owner":"h","lease":5,"start":7,"end":9}`,
		Run{State: RunFailed, Attempt: 1, Owner: "h", Lease: 5, StartMS: 7, EndMS: 9, Error: "e"}.Encode():            `{"v":1,"state":"failed","attempt":1,"owner":"h","lease":5,"start":7,"end":9,"error":"e"}`,
		Run{State: RunUnlocked, Attempt: 1, Owner: "h", Lease: 5, StartMS: 7, EndMS: 9, Error: "r", By: "b"}.Encode(): `{"v":1,"state":"unlocked","attempt":1,"owner":"h","lease":5,"start":7,"end":9,"error":"r","by":"b"}`,
		Lock{Nonce: "n", Lease: 5, Tick: "2026-11-21T08:00:00Z", Attempt: 1, Owner: "h", AtMS: 7}.Encode():            `{"v":1,"nonce":"n","lease":5,"tick":"2026-11-21T08:00:00Z","attempt":1,"owner":"h","at":7}`,
		Pause{By: "b", Reason: "r", AtMS: 7}.Encode():                                                                 `{"v":1,"by":"b","reason":"r","at":7}`,
		Clock{Owner: "h", AtMS: 7}.Encode():                                                                           `{"v":1,"owner":"h","at":7}`,
	}
	for got, want := range golden {
		require.Equal(t, want, got)
	}
}

func TestJobDecodeIsWary(t *testing.T) {
	r, ok := DecodeRun([]byte(`{"v":1,"state":"running","attempt":3,"later":"field"}`))
	require.True(t, ok, "unknown fields of later releases are ignored")
	require.Equal(t, 3, r.Attempt)
	for _, bad := range []string{"", "null", "{}", "[]", `"x"`, `{"v":2,"attempt":1}`, `{"v":1}`, `{"v":1,"attempt":0}`, `{"v":1,"attempt":-1}`,
		`{"v":1,"attempt":1e99}`, `{"v":1,"attempt":1`, `{"v":1,"attempt":1,"error":"` + strings.Repeat("x", MaxSize) + `"}`} {
		_, ok := DecodeRun([]byte(bad))
		require.False(t, ok, "%.60s", bad)
	}
	for _, bad := range []string{"", "{}", `{"v":2}`, `{"v":1,"at":"x"}`, "[1]"} {
		_, ok := DecodeLock([]byte(bad))
		require.False(t, ok, bad)
		_, ok = DecodePause([]byte(bad))
		require.False(t, ok, bad)
		_, ok = DecodeOperated([]byte(bad))
		require.False(t, ok, bad)
		_, ok = DecodeClock([]byte(bad))
		require.False(t, ok, bad)
	}
	// The longest error text that is stored, each byte of which is written as six.
	long := Run{State: RunFailed, Attempt: 1, Error: strings.Repeat("\x01", 1024)}
	_, ok = DecodeRun([]byte(long.Encode()))
	require.True(t, ok)
}

func FuzzDecodeJob(f *testing.F) {
	f.Add([]byte(Run{State: RunFailed, Attempt: 1, Error: "e"}.Encode()))
	f.Add([]byte(Lock{Nonce: "n", Tick: "t"}.Encode()))
	f.Add([]byte(Pause{By: "b"}.Encode()))
	f.Add([]byte(Clock{Owner: "h", AtMS: 9}.Encode()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := DecodeRun(b); ok {
			again, ok := DecodeRun([]byte(r.Encode()))
			require.True(t, ok)
			require.Equal(t, r, again)
		}
		if r, ok := DecodeLock(b); ok {
			again, _ := DecodeLock([]byte(r.Encode()))
			require.Equal(t, r, again)
		}
		DecodePause(b)
		DecodeOperated(b)
		DecodeClock(b)
	})
}

// The period of a job's settings is read as schedlock writes it.
func TestPeriodOf(t *testing.T) {
	for settings, want := range map[string]time.Duration{
		"AtMost 1m0s, AtLeast 0s, Retries 0":                                                                 0,
		"AtMost 1m0s, AtLeast 0s, Retries 0" + Period + "1h30m0s":                                            90 * time.Minute,
		"AtMost 1m0s, AtLeast 0s, Retries 0" + Period + "fire time like 2024-01-10T00:00:00.000Z (00000000)": 0,
		Period + "-1s": 0,
		"":             0,
	} {
		got, ok := PeriodOf(settings)
		require.Equal(t, want > 0, ok, settings)
		require.Equal(t, want, max(got, 0), settings)
	}
}
