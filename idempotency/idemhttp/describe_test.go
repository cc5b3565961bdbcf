package idemhttp

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outgoing returns a request with a body that can be read again.
func outgoing(media, body string) *http.Request {
	r := callTo("/upload", media, "", body)
	r.Header.Del("Connect-Protocol-Version")
	return r
}

// compressed compresses a text.
func compressed(t *testing.T, level int, text string) string {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	require.NoError(t, err)
	_, err = z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

// A105: a part that has parts itself, such as the changes in a batch, has a boundary of its own, which does
// not count, as that of the body does not.
func TestPartsOfParts(t *testing.T) {
	t.Parallel()
	body := func(outer, inner, text string) (media, body string) {
		part := "--" + inner + "\r\nContent-Type: application/http\r\n\r\n" + text + "\r\n--" + inner + "--\r\n"
		return "multipart/mixed; boundary=" + outer,
			"--" + outer + "\r\nContent-Type: multipart/mixed; boundary=" + inner + "\r\n\r\n" + part + "\r\n--" + outer + "--\r\n"
	}
	both := func(media, body string) (call string, received any) {
		call, err := describeCall(outgoing(media, body))
		require.NoError(t, err)
		r := httptest.NewRequest(http.MethodPost, "/upload", nil)
		r.Header.Set("Content-Type", media)
		received, err = Content(r, []byte(body))
		require.NoError(t, err)
		return call, received
	}
	call, received := both(body("b1", "c1", "POST /charges"))
	again, receivedAgain := both(body("b2", "c2", "POST /charges"))
	require.Equal(t, call, again)
	require.Equal(t, received, receivedAgain)
	other, receivedOther := both(body("b1", "c1", "POST /refunds"))
	require.NotEqual(t, call, other)
	require.NotEqual(t, received, receivedOther)

	within := func(n int) (media, text string) {
		media, text = "text/plain", "100 EUR"
		for i := range n {
			b := fmt.Sprintf("b%d", i)
			text = "--" + b + "\r\nContent-Type: " + media + "\r\n\r\n" + text + "\r\n--" + b + "--\r\n"
			media = "multipart/mixed; boundary=" + b
		}
		return media, text
	}
	both(within(1 + mostWithin))
	_, err := describeCall(outgoing(within(2 + mostWithin)))
	require.ErrorContains(t, err, "WithKey with an Attempt.ChildKey")
}

// A106: an outgoing body that is compressed by gzip is compared by what it holds, as Content compares it.
func TestCallCompressedAnew(t *testing.T) {
	t.Parallel()
	call := func(media, body string) string {
		r := outgoing(media, body)
		r.Header.Set("Content-Encoding", "gzip")
		text, err := describeCall(r)
		require.NoError(t, err)
		return text
	}
	const json, text = "application/json", "text/plain"
	long := strings.Repeat("100 EUR\n", 1000)
	require.Equal(t, call(json, compressed(t, 1, `{"a":1,"b":2}`)), call(json, compressed(t, 9, `{"b":2, "a":1}`)))
	require.NotEqual(t, call(json, compressed(t, 1, `{"a":1}`)), call(json, compressed(t, 1, `{"a":2}`)))
	require.Equal(t, call(text, compressed(t, 0, long)), call(text, compressed(t, 9, long)))
	require.NotEqual(t, call(text, compressed(t, 9, long)), call(text, compressed(t, 9, long+long)))

	r := outgoing(json, "{}")
	r.Header.Set("Content-Encoding", "gzip")
	_, err := describeCall(r)
	require.ErrorContains(t, err, "not compressed by gzip")
}

// A591: a body that is compressed in another way than by gzip is refused with the name of that, and not as JSON or parts that
// cannot be read; a form was compared by fields that its compressed bytes happened to have.
func TestCallCompressedOtherwise(t *testing.T) {
	t.Parallel()
	for coding, want := range map[string]string{"zstd": "by zstd,", "br": "by br,", "deflate": "by deflate,", "gzip, BR": "by gzip, then by br,", "gzip,gzip": "by gzip, then by gzip,"} {
		for _, media := range []string{"application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"} {
			r := outgoing(media, "(\xb5/\xfd")
			r.Header.Set("Content-Encoding", coding)
			_, err := describeCall(r)
			require.ErrorContains(t, err, "its body is compressed "+want+" and only gzip is read", coding, media)
			require.ErrorContains(t, err, "WithKey with an Attempt.ChildKey")
		}
	}
	r := outgoing("application/json", "{}")
	plain, err := describeCall(r)
	require.NoError(t, err)
	r.Header.Set("Content-Encoding", "identity")
	same, err := describeCall(r)
	require.NoError(t, err)
	require.Equal(t, plain, same)
}

// A649: a body that is neither JSON nor a form nor in parts was refused in another coding, such as a file that is stored in zstd,
// or a report in snappy; x-gzip was not known as gzip.
func TestCallWhoseBytesAreCompressed(t *testing.T) {
	t.Parallel()
	call := func(media, coding, body string) string {
		r := outgoing(media, body)
		r.Header.Set("Content-Encoding", coding)
		text, err := describeCall(r)
		require.NoError(t, err, "%s, %s", media, coding)
		return text
	}
	for _, media := range []string{"application/octet-stream", "application/x-protobuf", "text/plain", ""} {
		for _, coding := range []string{"zstd", "snappy", "gzip, br"} {
			require.Equal(t, call(media, coding, "(\xb5/\xfd"), call(media, coding, "(\xb5/\xfd"))
			require.NotEqual(t, call(media, coding, "(\xb5/\xfd"), call(media, coding, "(\xb5/\xfe"))
		}
		require.Equal(t, call(media, "gzip", compressed(t, 1, "a")), call(media, "X-GZip", compressed(t, 9, "a")))
	}
	require.Equal(t, call("application/json", "x-gzip", compressed(t, 1, `{"a":1,"b":2}`)), call("application/json", "gzip", compressed(t, 9, `{"b":2, "a":1}`)))
}

// A353: calls that differ only in the Opaque of their URL, which net/http sends in place of a path, had one key, so that
// the second was answered with the result of the first.
func TestOpaqueIsDescribed(t *testing.T) {
	t.Parallel()
	call := func(opaque string) string {
		r := outgoing("application/json", `{"amount":1}`)
		r.URL.Opaque = opaque
		text, err := describeCall(r)
		require.NoError(t, err)
		return text
	}
	require.Equal(t, call("//pay.example/charges/1"), call("//pay.example/charges/1"))
	require.NotEqual(t, call("//pay.example/charges/1"), call("//pay.example/charges/2"))
}

// A107: parameters that cannot be parsed hide neither JSON, nor a call of RPC, nor a multipart body: one whose
// boundary cannot be read, which is another one in each attempt, is not sent without a key.
func TestMediaTypeThatCannotBeParsed(t *testing.T) {
	t.Parallel()
	for media, body := range map[string]string{
		"multipart/form-data":               "--b\r\n\r\ntext\r\n--b--\r\n",
		"multipart/form-data; boundary=b b": "--b b\r\n\r\ntext\r\n--b b--\r\n",
		"application/grpc; b":               string(frame(0, "\x0a\x00")),
	} {
		_, err := describeCall(outgoing(media, body))
		require.ErrorContains(t, err, "WithKey with an Attempt.ChildKey", media)
	}
	const media = "application/json; charset=utf-8; charset=utf-8"
	one, err := describeCall(outgoing(media, `{"a":1,"b":2}`))
	require.NoError(t, err)
	two, err := describeCall(outgoing(media, `{"b":2, "a":1}`))
	require.NoError(t, err)
	require.Equal(t, one, two)
}

// D24: JSON in a part of a multipart body is compared as JSON: an encoder that ordered a map anew made another key of the
// call, and another request of a duplicate. Exact compares its bytes.
func TestJSONInParts(t *testing.T) {
	t.Parallel()
	const media = "multipart/related; boundary=b"
	body := func(header, json string) string {
		return "--b\r\nContent-Type: application/json\r\n" + header + "\r\n" + json + "\r\n--b\r\nContent-Type: image/png\r\n\r\n{ }\r\n--b--\r\n"
	}
	call := func(body string) string {
		text, err := describeCall(outgoing(media, body))
		require.NoError(t, err)
		return text
	}
	received := func(payload func(*http.Request, []byte) (any, error), body string) any {
		sum, err := payload(outgoing(media, body), []byte(body))
		require.NoError(t, err)
		return sum
	}
	one, same, other := body("", `{"a":1,"b":2}`), body("", `{ "b":2, "a":1}`), body("", `{"a":1,"b":3}`)
	require.Equal(t, call(one), call(same))
	require.NotEqual(t, call(one), call(other))
	require.Equal(t, received(Content, one), received(Content, same))
	require.NotEqual(t, received(Content, one), received(Content, other))
	require.NotEqual(t, received(Exact, one), received(Exact, same))
	require.NotEqual(t, received(Content, one), received(Content, strings.Replace(one, "{ }", "{}", 1)), "a part of another type")

	// Of a part in another encoding, the bytes count.
	const coded = "Content-Transfer-Encoding: base64\r\n"
	require.NotEqual(t, call(body(coded, "eyJhIjoxfQ==")), call(body(coded, "eyJhIjogMX0=")))
	require.Equal(t, call(body("Content-Transfer-Encoding: 8bit\r\n", "1")), call(body("Content-Transfer-Encoding: 8bit\r\n", " 1")))

	// What cannot be compared is bytes in a request, and refused in a call.
	twice := body("", `{"a":1,"a":2}`)
	require.Equal(t, received(Content, twice), received(Content, twice))
	require.NotEqual(t, received(Content, twice), received(Content, body("", `{"a":1, "a":2}`)))
	_, err := describeCall(outgoing(media, twice))
	require.ErrorContains(t, err, "the JSON in its part")
	require.ErrorContains(t, err, "WithKey with an Attempt.ChildKey")
}

// D24: a call whose body is said to be JSON, and cannot be compared, is refused before it is sent. It was compared byte by
// byte without a word, so that another encoding was another key: that is noticed at the second charge.
func TestCallWhoseJSONCannotBeCompared(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"cut": `{"amount":`, "a name twice": `{"a":1,"a":2}`, "two texts": "{}\n{}", "no Unicode": "\"\xfe\""} {
		for _, media := range []string{"application/json", "application/vnd.pay+json; charset=utf-8"} {
			_, err := describeCall(outgoing(media, text))
			require.ErrorContains(t, err, "WithKey with an Attempt.ChildKey", name)
			require.ErrorContains(t, err, "JSON", name)
		}
		_, err := describeCall(outgoing("text/plain", text))
		require.NoError(t, err, "another type is bytes")
	}
	_, err := describeCall(outgoing("application/json", ""))
	require.NoError(t, err)
}
