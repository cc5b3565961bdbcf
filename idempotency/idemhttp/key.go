package idemhttp

import (
	"errors"
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// key reads the idempotency key of a request, an Item of Structured Fields (RFC 9651) that
// is a String; parameters are ignored. Unless strict is set, a key without quotes stands for
// the String of the same characters.
func key(h http.Header, name string, strict bool) (string, error) {
	text, err := middleware.Single(h.Values(name))
	if err != nil {
		return "", err
	}
	text = strings.Trim(text, " ")
	if !strict && bare(text) {
		return text, middleware.CheckLength(text)
	}
	item, err := httpsfv.UnmarshalItem([]string{text})
	if err != nil {
		return "", errors.New("it is not a String of Structured Fields, such as \"8e03978e\" with its quotes")
	}
	s, ok := item.Value.(string)
	if !ok {
		return "", errors.New("it is a Structured Field, but not a String: the quotes are missing")
	}
	return s, middleware.CheckLength(s)
}

// bare reports whether a text is a key without quotes. A text that could be the beginning of
// another Structured Field is none.
func bare(text string) bool { return visible(text, `"',;\()`) }

// visible reports whether s has visible ASCII characters only, none of those in except, and is not
// empty.
func visible(s, except string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(except, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// quoted returns a key as the header has it. It returns an error if the key is no String of
// Structured Fields.
func quoted(key string) (string, error) {
	if err := middleware.CheckLength(key); err != nil {
		return "", err
	}
	return httpsfv.Marshal(httpsfv.NewItem(key))
}
