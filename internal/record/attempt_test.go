package record

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAttemptGolden holds the stored form of idempotency's records still, as TestGolden does.
func TestAttemptGolden(t *testing.T) {
	golden := map[string]string{
		Attempt{State: AttemptWorking, Number: 1, Nonce: "n", Lease: 5, Owner: "h", Scope: "s", Op: "o", Print: []byte{1, 2}, Refuse: true, StartMS: 7,
			Body: EncodeSteps([]Step{{Name: "a", Codec: "c", Value: []byte("v")}})}.Encode(): `{"v":1,"state":"working","attempt":1,"nonce":"n","lease":5,"holder":"h","scope":"s","op":"o","print":"AQI=","refuse":true,"start":7}` + "\n" + `[{"name":"a","codec":"c","value":"dg=="}]`,
		Attempt{State: AttemptDone, Number: 2, Nonce: "n", Lease: 5, Print: []byte{1}, StartMS: 7, EndMS: 9, Token: 11, Codec: "c", Size: 2, Body: []byte("{\n")}.Encode(): `{"v":1,"state":"done","attempt":2,"nonce":"n","lease":5,"print":"AQ==","start":7,"end":9,"token":11,"codec":"c","size":2}` + "\n{\n",
		Attempt{State: AttemptFailed, Number: 1, Nonce: "n", Lease: 5, Print: []byte{1}, StartMS: 7, EndMS: 9, Token: 11, Error: "e", By: "b", Omitted: true}.Encode():     `{"v":1,"state":"failed","attempt":1,"nonce":"n","lease":5,"print":"AQ==","start":7,"end":9,"token":11,"omitted":true,"error":"e","by":"b"}` + "\n",
		Attempt{State: AttemptDone, Number: 1, Nonce: "n", Lease: 5, Print: []byte{1}, StartMS: 7, EndMS: 9, Token: 11, Size: 3000000, Parts: 3, Sum: []byte{1}}.Encode():  `{"v":1,"state":"done","attempt":1,"nonce":"n","lease":5,"print":"AQ==","start":7,"end":9,"token":11,"size":3000000,"parts":3,"sum":"AQ=="}` + "\n",
		Attempt{State: AttemptDone, Number: 1, Nonce: "n", Lease: 5, Print: []byte{1}, Also: []byte{2}, StartMS: 7}.Encode():                                               `{"v":1,"state":"done","attempt":1,"nonce":"n","lease":5,"print":"AQ==","also":"Ag==","start":7}` + "\n",
		Attempt{State: AttemptReleased, Number: 1, Nonce: "n", Lease: 5, Print: []byte{1}, StartMS: 7}.Encode():                                                            `{"v":1,"state":"released","attempt":1,"nonce":"n","lease":5,"print":"AQ==","start":7}` + "\n",
		Claim{Nonce: "n", Lease: 5, Owner: "h"}.Encode(): `{"v":1,"nonce":"n","lease":5,"holder":"h"}`,
	}
	for got, want := range golden {
		require.Equal(t, want, got)
		if r, ok := DecodeAttempt([]byte(want)); ok {
			require.Equal(t, want, r.Encode())
		} else {
			_, ok := DecodeClaim([]byte(want))
			require.True(t, ok, want)
		}
	}
}

func TestAttemptDecodeIsWary(t *testing.T) {
	r, ok := DecodeAttempt([]byte(`{"v":1,"state":"done","attempt":3,"later":"field","size":2}` + "\nxy"))
	require.True(t, ok, "unknown fields of later releases are ignored")
	require.Equal(t, "xy", string(r.Body))
	head := `{"v":1,"state":"done","attempt":1`
	for _, bad := range []string{"", "\n", "null\n", "{}\n", "[]\n", head + "}", head + "\n", head + "}\nx", head + `,"size":1}` + "\n", head + `,"size":-1}` + "\n",
		head + `,"size":5,"parts":99999}` + "\n", head + `,"parts":-1}` + "\n", head + `,"error":"` + strings.Repeat("x", MaxSize) + `"}` + "\n",
		`{"v":2,"state":"done","attempt":1}` + "\n", `{"v":1,"state":"done","attempt":0}` + "\n", `{"v":1,"state":"gone","attempt":1}` + "\n"} {
		_, ok := DecodeAttempt([]byte(bad))
		require.False(t, ok, "%.60q", bad)
	}
	for _, bad := range []string{"", "{}", "[1]", `{"v":2}`} {
		_, ok := DecodeClaim([]byte(bad))
		require.False(t, ok, bad)
	}
	_, ok = DecodeSteps([]byte("x"))
	require.False(t, ok)
	// The longest texts that are stored, each byte of which is written as six.
	long := Attempt{State: AttemptFailed, Number: 1, Error: strings.Repeat("\x01", 1024), Scope: strings.Repeat("\x01", 255), Op: strings.Repeat("\x01", 255), Owner: strings.Repeat("\x01", 255)}
	_, ok = DecodeAttempt([]byte(long.Encode()))
	require.True(t, ok)
}

func FuzzDecodeAttempt(f *testing.F) {
	f.Add([]byte(Attempt{State: AttemptDone, Number: 1, Size: 1, Body: []byte("x")}.Encode()))
	f.Add([]byte(Attempt{State: AttemptWorking, Number: 1, Body: EncodeSteps([]Step{{Name: "n"}})}.Encode()))
	f.Add([]byte(Claim{Nonce: "n"}.Encode()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := DecodeAttempt(b); ok {
			again, ok := DecodeAttempt([]byte(r.Encode()))
			require.True(t, ok)
			again.Body, r.Body = append([]byte{}, again.Body...), append([]byte{}, r.Body...)
			require.Equal(t, r, again)
			if steps, ok := DecodeSteps(r.Body); ok && len(steps) > 0 {
				again, ok := DecodeSteps(EncodeSteps(steps))
				require.True(t, ok)
				require.Len(t, again, len(steps))
			}
		}
		DecodeClaim(b)
	})
}
