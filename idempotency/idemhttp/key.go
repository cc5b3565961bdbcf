package idemhttp

import (
	"net/http"

	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// key reads the idempotency key of a request: see middleware.ParseKey.
func key(h http.Header, name string, strict bool) (string, error) {
	text, err := middleware.Single(h.Values(name))
	if err != nil {
		return "", err
	}
	return middleware.ParseKey(text, strict)
}
