package record

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestAttemptGolden holds the stored form of idempotency's records still, as TestGolden does.
func TestAttemptGolden(t *testing.T) {
	golden := map[string]string{
		Attempt{State: AttemptWorking, Number: 1, Nonce: "n", Lease: 5, Owner: "h", Scope: "s", Op: "o", Print: []byte{1, 2}, Refuse: true, StartMS: 7,
			Body: EncodeSteps([]Step{{Name: "a", Codec: "c", Value: []byte("v")}})}.Encode(): `{"v":1,"state":"working","attempt":1,"nonce":"n","lease":5,"owner":"h","scope":"s","op":"o","fingerprint":"AQI=","refuse":true,"start":7}` + "\n" + `[{"name":"a","codec":"c","value":"dg=="}]`,
		Attempt{State: AttemptDone, Number: 2, Nonce: "n", Lease: 5, Print: []byte{1}, StartMS: 7, EndMS: 9, Token: 11, Codec: "c", Size: 2, Body: []byte("{\n")}.Encode():                   `{"v":1,"state":"done","attempt":2,"nonce":"n","lease":5,"fingerprint":"AQ==","start":7,"end":9,"token":11,"codec":"c","size":2}` + "\n{\n",
		Attempt{State: AttemptFailed, Number: 1, Nonce: "n", Lease: 5, Print: []byte{1}, StartMS: 7, EndMS: 9, Token: 11, Error: "e", By: "b", Omitted: true}.Encode():                       `{"v":1,"state":"failed","attempt":1,"nonce":"n","lease":5,"fingerprint":"AQ==","start":7,"end":9,"token":11,"omitted":true,"error":"e","by":"b"}` + "\n",
		Attempt{State: AttemptDone, Number: 1, Nonce: "n", Lease: 5, Print: []byte{1}, StartMS: 7, EndMS: 9, Token: 11, Size: 3000000, Parts: 3, Sum: []byte{1}}.Encode():                    `{"v":1,"state":"done","attempt":1,"nonce":"n","lease":5,"fingerprint":"AQ==","start":7,"end":9,"token":11,"size":3000000,"parts":3,"sum":"AQ=="}` + "\n",
		Attempt{State: AttemptDone, Number: 1, Nonce: "n", Lease: 5, Print: []byte{1}, Also: []byte{2}, StartMS: 7}.Encode():                                                                 `{"v":1,"state":"done","attempt":1,"nonce":"n","lease":5,"fingerprint":"AQ==","also_fingerprint":"Ag==","start":7}` + "\n",
		Attempt{State: AttemptWorking, Number: 1, Nonce: "n", Lease: 5, Op: "o", Via: "http", Note: "order 7", Print: []byte{1}, StartMS: 7, Codec: "c"}.Encode():                            `{"v":1,"state":"working","attempt":1,"nonce":"n","lease":5,"op":"o","via":"http","note":"order 7","fingerprint":"AQ==","start":7,"codec":"c"}` + "\n",
		Attempt{State: AttemptDone, Number: 1, Nonce: "n", Lease: 5, Print: []byte{1}, StartMS: 7, EndMS: 9, By: "b", Was: []Word{{State: "failed", By: "a", AtMS: 8, Error: "e"}}}.Encode(): `{"v":1,"state":"done","attempt":1,"nonce":"n","lease":5,"fingerprint":"AQ==","start":7,"end":9,"by":"b","was":[{"state":"failed","by":"a","at":8,"error":"e"}]}` + "\n",
		Attempt{State: AttemptReleased, Number: 1, Nonce: "n", Lease: 5, Print: []byte{1}, StartMS: 7}.Encode():                                                                              `{"v":1,"state":"released","attempt":1,"nonce":"n","lease":5,"fingerprint":"AQ==","start":7}` + "\n",
		Attempt{State: AttemptWorking, Number: 1, Nonce: "n", Lease: 5, Owner: "h", Session: "i", Print: []byte{1}, StartMS: 7}.Encode():                                                     `{"v":1,"state":"working","attempt":1,"nonce":"n","lease":5,"owner":"h","session":"i","fingerprint":"AQ==","start":7}` + "\n",
		Attempt{State: AttemptWorking, Number: 1, Nonce: "n", Lease: 5, Via: "grpc", Returns: "shop.v1.Receipt", Print: []byte{1}, StartMS: 7}.Encode():                                      `{"v":1,"state":"working","attempt":1,"nonce":"n","lease":5,"via":"grpc","returns":"shop.v1.Receipt","fingerprint":"AQ==","start":7}` + "\n",
		Attempt{State: AttemptLost, Number: 1, Nonce: "n", Lease: 5, Print: []byte{1}, StartMS: 7}.Encode():                                                                                  `{"v":1,"state":"lost","attempt":1,"nonce":"n","lease":5,"fingerprint":"AQ==","start":7}` + "\n",
	}
	for got, want := range golden {
		require.Equal(t, want, got)
		r, ok := DecodeAttempt([]byte(want))
		require.True(t, ok, want)
		require.Equal(t, want, r.Encode())
	}
}

// The line of a record is what json.Marshal writes.
func TestAttemptIsEncodedAsByReflection(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", "<&>", "\u2028", "\x7f", "\xff", "\"\\"}))
	bytes := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Just[[]byte](nil))
	rapid.Check(t, func(t *rapid.T) {
		var r Attempt
		for _, s := range []*string{&r.State, &r.Nonce, &r.Owner, &r.Session, &r.Scope, &r.Op, &r.Via, &r.Returns, &r.Note, &r.Codec, &r.Error, &r.By} {
			*s = text.Draw(t, "text")
		}
		for _, b := range []*[]byte{&r.Print, &r.Also, &r.Sum, &r.Body} {
			*b = bytes.Draw(t, "bytes")
		}
		for _, n := range []*int64{&r.Lease, &r.StartMS, &r.EndMS, &r.Token} {
			*n = rapid.Int64().Draw(t, "number")
		}
		for _, n := range []*int{&r.Number, &r.Size, &r.Parts} {
			*n = rapid.Int().Draw(t, "number")
		}
		r.Refuse, r.Omitted = rapid.Bool().Draw(t, "refuse"), rapid.Bool().Draw(t, "omitted")
		if rapid.Bool().Draw(t, "was") {
			r.Was = []Word{{State: "done", By: text.Draw(t, "by"), AtMS: 7}}
		}
		by := r
		by.Version = version
		require.Equal(t, encode(by)+"\n"+string(r.Body), r.Encode())
	})
}

// What a guard compares is the beginning of the record of one attempt that works, with all that changes meanwhile, and of
// no other.
func TestPrefix(t *testing.T) {
	t.Parallel()
	at := Attempt{State: AttemptWorking, Number: 2, Nonce: "n", Lease: 5, Print: []byte{1}}
	require.Equal(t, `{"v":1,"state":"working","attempt":2,"nonce":"n","lease":5,`, at.Prefix())
	same := at
	same.Owner, same.Note, same.Also, same.Body = "h", "order 7", []byte{2}, EncodeSteps([]Step{{Name: "a"}})
	require.True(t, strings.HasPrefix(same.Encode(), at.Prefix()))
	require.Equal(t, at.Prefix(), same.Prefix())
	bare := Attempt{State: AttemptWorking, Number: 2, Nonce: "n", Lease: 5}
	require.True(t, strings.HasPrefix(bare.Encode(), at.Prefix()), "without a fingerprint")
	for name, change := range map[string]func(*Attempt){
		"lost": func(r *Attempt) { r.State = AttemptLost }, "done": func(r *Attempt) { r.State = AttemptDone }, "released": func(r *Attempt) { r.State = AttemptReleased },
		"the next": func(r *Attempt) { r.Number = 20 }, "another": func(r *Attempt) { r.Nonce = "n2" }, "on another lease": func(r *Attempt) { r.Lease = 50 },
	} {
		other := at
		change(&other)
		require.False(t, strings.HasPrefix(other.Encode(), at.Prefix()), name)
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
	_, ok = DecodeSteps([]byte("x"))
	require.False(t, ok)
	require.Nil(t, StepNames([]byte("x")))
	require.Nil(t, StepNames(nil))
	require.Equal(t, []string{"a", "b"}, StepNames(EncodeSteps([]Step{{Name: "a", Value: []byte("v")}, {Name: "b"}})))
	// The longest texts that are stored, each byte of which is written as six.
	name, text := strings.Repeat("\x01", 255), strings.Repeat("\x01", 2000)
	long := Attempt{State: AttemptFailed, Number: 1, Error: Text(text), Scope: name, Op: name, Owner: name, Via: strings.Repeat("<", 64), Returns: strings.Repeat("<", 255), Note: Note(strings.Repeat("<", 2000))}
	for range 2 * MaxWas {
		long.By = name
		long = long.Replaced()
	}
	require.Len(t, long.Was, MaxWas)
	long.By = name
	_, ok = DecodeAttempt([]byte(long.Encode()))
	require.True(t, ok)
}

// What an operator has said is kept when it is replaced, and what was said before that.
func TestReplaced(t *testing.T) {
	t.Parallel()
	require.Empty(t, Attempt{State: AttemptDone, Number: 1}.Replaced().Was, "no operator has said anything")
	first := Attempt{State: AttemptDone, Number: 1, By: "ada", EndMS: 7}.Replaced()
	require.Equal(t, []Word{{State: AttemptDone, By: "ada", AtMS: 7}}, first.Was)
	first.State, first.By, first.EndMS, first.Error = AttemptFailed, "bob", 9, strings.Repeat("é", 80)
	second := first.Replaced()
	require.Equal(t, []Word{{State: AttemptDone, By: "ada", AtMS: 7}, {State: AttemptFailed, By: "bob", AtMS: 9, Error: strings.Repeat("é", 48)}}, second.Was)
	require.Len(t, first.Was, 1, "the record that was replaced is as before")
}

// A note is one visible line.
func TestNote(t *testing.T) {
	t.Parallel()
	require.Equal(t, "order 7  paid", Note("\n order 7\r\npaid\x00"))
	require.Equal(t, "a�", Note("a\xff"))
	require.Equal(t, strings.Repeat("é", MaxNote/2), Note(strings.Repeat("é", MaxNote)))
	require.Equal(t, "a"+strings.Repeat("é", MaxNote/2-1), Note("a"+strings.Repeat("é", MaxNote)), "cut at the end of a character")
}

func FuzzDecodeAttempt(f *testing.F) {
	f.Add([]byte(Attempt{State: AttemptDone, Number: 1, Size: 1, Body: []byte("x")}.Encode()))
	f.Add([]byte(Attempt{State: AttemptWorking, Number: 1, Body: EncodeSteps([]Step{{Name: "n"}})}.Encode()))
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
	})
}
