package middleware

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/retries"
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

// ParseKey returns the key that a header has, an Item of Structured Fields (RFC 9651) that is a
// String; parameters are ignored. Unless strict is set, a key without quotes stands for the String
// of the same characters. All transports read keys in this way, so a key is the same behind each of
// them. It returns an error that says what is wrong with the text.
func ParseKey(text string, strict bool) (string, error) {
	text = strings.Trim(text, " ")
	if !strict && bare(text) {
		return text, checkLength(text)
	}
	item, err := httpsfv.UnmarshalItem([]string{text})
	if err != nil {
		return "", errors.New("it is not a String of Structured Fields, such as \"8e03978e\" with its quotes")
	}
	s, ok := item.Value.(string)
	if !ok {
		return "", errors.New("it is a Structured Field, but not a String: the quotes are missing")
	}
	return s, checkLength(s)
}

// QuoteKey returns a key as a String of Structured Fields. It returns an error if the key cannot be
// one.
func QuoteKey(key string) (string, error) {
	if err := checkLength(key); err != nil {
		return "", err
	}
	return httpsfv.Marshal(httpsfv.NewItem(key))
}

// WriteKey returns a key without quotes if ParseKey reads it so, and otherwise what QuoteKey returns. It
// returns an error for a key that is empty or too long.
func WriteKey(key string) (string, error) {
	if bare(key) {
		return key, checkLength(key)
	}
	return QuoteKey(key)
}

// bare reports whether a text is a key without quotes: visible ASCII characters, without those that quote,
// escape or separate in Structured Fields. So the text of a number, a token, a boolean or a date of
// Structured Fields is a key of these characters.
func bare(text string) bool { return Visible(text, `"',;\()`) }

// Visible reports whether s has visible ASCII characters only, none of those in except, and is not
// empty.
func Visible(s, except string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(except, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// checkLength returns an error for a key that is empty or longer than MaxKey.
func checkLength(key string) error {
	switch {
	case key == "":
		return errors.New("it is empty")
	case len(key) > MaxKey:
		return fmt.Errorf("it has more than %d characters", MaxKey)
	}
	return nil
}

// Fit returns a scope or an operation as it is if a Key can have it, and otherwise its
// beginning and its hash. Two that differ stay apart: one that looks as if it had been shortened is shortened as well.
func Fit(s string) string {
	if len(s) <= MaxKey && !shortened(s) {
		return s
	}
	return fmt.Sprintf("%s#%x", s[:begins], sha256.Sum256([]byte(s)))
}

// begins is how many bytes of a shortened text are its beginning.
const begins = 128

// shortened reports whether Fit may have returned a text for another one.
func shortened(s string) bool {
	return len(s) == begins+1+2*sha256.Size && s[begins] == '#' && strings.Trim(s[begins+1:], "0123456789abcdef") == ""
}

// attemptOf returns the attempt whose keys the calls with ctx have, or nil: also that of a request that runs without a claim.
func attemptOf(ctx context.Context) *idempotency.Attempt {
	a, _ := idempotency.FromContext(ctx)
	return a
}

// GivenKey is the key that a client's context was given.
type GivenKey struct {
	text   string
	random bool
	in     *idempotency.Attempt // in which a random key was made; nil outside of attempts
}

// Given returns a key that the caller has chosen.
func Given(key string) *GivenKey { return &GivenKey{text: key} }

// GivenAnew returns a new random key for the calls of ctx.
func GivenAnew(ctx context.Context) *GivenKey {
	return &GivenKey{rand.Text(), true, attemptOf(ctx)}
}

// For returns the key for calls with ctx. It reports none within an attempt if the key is random: the attempt that takes
// over would have another one. k may be nil.
func (k *GivenKey) For(ctx context.Context) (string, bool) {
	if k == nil {
		return "", false
	}
	return k.text, !(k.random && attemptOf(ctx) != nil)
}

// Key returns the key, for calls that are no longer their attempt's: see package retries.
func (k *GivenKey) Key() string { return k.text }

// mark returns ctx so that its equal calls have one key, if k was made in its attempt. k may be nil.
func (k *GivenKey) mark(ctx context.Context) context.Context {
	if a := attemptOf(ctx); a != nil && k != nil && k.in == a {
		return retries.With(ctx, k)
	}
	return ctx
}

// CallKey returns the key of a call to another service whose context was given none that counts: in the context of an
// attempt, idempotency.CallKey of the call's description, with its retry; otherwise a random key without a
// retry. It returns an error of describe, of a call that cannot be compared, or that of idempotency.CallKey,
// with what is attempted.
func CallKey(ctx context.Context, given *GivenKey, attempted string, describe func() (text string, apart map[string]string, err error)) (key string, retry func(), err error) {
	if attemptOf(ctx) != nil {
		text, apart, err := describe()
		if err != nil {
			return "", nil, err
		}
		if key, retry, err = idempotency.CallKey(given.mark(ctx), text, apart); err != nil {
			err = fmt.Errorf("%s within an attempt: %w, by WithKey", attempted, err)
		}
		return key, retry, err
	}
	return rand.Text(), nil, nil
}
