package mux

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type paying struct{}

func (paying) ServeHTTP(http.ResponseWriter, *http.Request) {}

// A623: an http.ServeMux is looked through, by the request.
func TestCalled(t *testing.T) {
	t.Parallel()
	inner, outer := http.NewServeMux(), http.NewServeMux()
	outer.Handle("POST /pay", paying{})
	outer.Handle("/files/", paying{})
	outer.Handle("/logs", http.NotFoundHandler())
	outer.Handle("api.example/", inner)
	inner.Handle("GET /{id}", paying{})
	outer.Handle("/again", outer)
	for target, want := range map[string]bool{
		"POST /pay": true, "GET /pay": false, "POST /files/a": true, "GET /logs": false, "POST /none": false, "GET /again": false,
		"POST /files":              false, // a redirect
		"GET http://api.example/7": true, "POST http://api.example/7": false,
	} {
		method, path, _ := strings.Cut(target, " ")
		_, is := Called(outer, httptest.NewRequest(method, path, nil)).(paying)
		require.Equal(t, want, is, target)
	}
	require.Equal(t, paying{}, Called(paying{}, nil))
}
