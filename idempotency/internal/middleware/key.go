package middleware

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/etcdkit/etcdkit/idempotency"
)

// MaxKey is the greatest length of an idempotency key, in bytes, and of a scope and an
// operation in a Key.
const MaxKey = 255

// ErrNoKey is the error of Single for a request without a key.
var ErrNoKey = errors.New("there is none")

// Single returns the only value of a request's key. It returns ErrNoKey if there is none, and
// an error if there are several.
func Single(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", ErrNoKey
	case 1:
		return values[0], nil
	}
	return "", errors.New("there is more than one")
}

// CheckLength returns an error for a key that is empty or longer than MaxKey.
func CheckLength(key string) error {
	switch {
	case key == "":
		return errors.New("it is empty")
	case len(key) > MaxKey:
		return fmt.Errorf("it has more than %d characters", MaxKey)
	}
	return nil
}

// Fit returns a scope or an operation as it is if a Key can have it, and otherwise its
// beginning and its hash.
func Fit(s string) string {
	if len(s) <= MaxKey {
		return s
	}
	return fmt.Sprintf("%s#%x", s[:128], sha256.Sum256([]byte(s)))
}

// CallKey returns the key of a call to another service: in the context of an attempt,
// idempotency.CallKey of the call's description, with its retry; a random key without a retry
// otherwise, and if the call cannot be described.
func CallKey(ctx context.Context, describe func() (text string, ok bool)) (key string, retry func()) {
	if _, within := idempotency.FromContext(ctx); within {
		if text, ok := describe(); ok {
			if key, retry, ok := idempotency.CallKey(ctx, text); ok {
				return key, retry
			}
		}
	}
	return rand.Text(), nil
}
