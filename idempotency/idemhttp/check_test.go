package idemhttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A response that an operator has made is checked like one that a handler has: what a replay could not send is named.
func TestCheckResponse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		res idemhttp.Response
		bad string
	}{
		"a response":           {idemhttp.Response{Status: 201, Header: http.Header{"Location": {"/orders/1"}}, Body: []byte("x")}, ""},
		"a failure":            {idemhttp.Response{Status: 402}, ""},
		"no status":            {idemhttp.Response{}, "0"},
		"an interim response":  {idemhttp.Response{Status: 103}, "103"},
		"another protocol":     {idemhttp.Response{Status: 101}, "101"},
		"a body without room":  {idemhttp.Response{Status: 204, Body: []byte("x")}, "204"},
		"plain, not gzip":      {idemhttp.Response{Status: 200, Header: http.Header{"content-encoding": {"gzip"}}, Body: []byte("x")}, "gzip"},
		"another coding":       {idemhttp.Response{Status: 200, Header: http.Header{"Content-Encoding": {"br"}}, Body: []byte("x")}, ""},
		"no content":           {idemhttp.Response{Status: 204}, ""},
		"a cookie":             {idemhttp.Response{Status: 200, Header: http.Header{"set-cookie": {"a=b"}}}, "set-cookie"},
		"a length":             {idemhttp.Response{Status: 200, Header: http.Header{"Content-Length": {"7"}}}, "Content-Length"},
		"no name of a header":  {idemhttp.Response{Status: 200, Header: http.Header{"a b": {"7"}}}, "a b"},
		"no value of a header": {idemhttp.Response{Status: 200, Header: http.Header{"A": {"7\r\nB: c"}}}, "control"},
	} {
		err := c.res.Check()
		if c.bad == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.bad, name)
		}
	}
}
