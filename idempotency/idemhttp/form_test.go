package idemhttp

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// V11: a form whose fields were written in another order, or escaped in another way, was another request: it was refused, and within an
// attempt it had another key each time. The order of the values of one name counts.
func TestFormsByTheirFields(t *testing.T) {
	t.Parallel()
	const media = "application/x-www-form-urlencoded"
	received := func(media, body string, payload func(*http.Request, []byte) (any, error)) any {
		r := httptest.NewRequest(http.MethodPost, "/charge", nil)
		r.Header.Set("Content-Type", media)
		p, err := payload(r, []byte(body))
		require.NoError(t, err)
		return p
	}
	call := func(body string) string {
		text, err := describeCall(outgoing(media, body))
		require.NoError(t, err)
		return text
	}
	const form = "amount=100&currency=eur&item=a&item=b"
	for body, same := range map[string]bool{
		"currency=eur&item=a&amount=100&item=b":        true,
		"amount=100&currency=%65ur&item=a&item=b":      true,
		"amount=100&currency=eur&item=b&item=a":        false,
		"amount=100&currency=eur&item=a":               false,
		"amount=100&currency=eur&item=a&item=b&item=c": false,
		"amount=100%26currency=eur&item=a&item=b":      false,
	} {
		require.Equal(t, same, received(media, form, Content) == received(media, body, Content), body)
		require.Equal(t, same, call(form) == call(body), body)
		require.NotEqual(t, received(media, form, Exact), received(media, body, Exact), body)
		require.NotEqual(t, received("text/plain", form, Content), received("text/plain", body, Content), body)
	}
	require.Equal(t, call("a=b+c"), call("a=b%20c"))
	require.Equal(t, received(media+"; charset=utf-8", form, Content), received(media, form, Content))

	const malformed = "a=%zz"
	require.NotEqual(t, received(media, malformed, Content), received(media, "a=%yy", Content), "compared as it is")
	_, err := describeCall(outgoing(media, malformed))
	require.ErrorContains(t, err, "no form")
	require.ErrorContains(t, err, "WithKey with an Attempt.ChildKey")
}
