package middleware

import "errors"

// ErrNotSent: a client has not called what sends its requests.
var ErrNotSent = errors.New("not sent")
