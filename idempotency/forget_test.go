package idempotency

import (
	"container/list"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A205: a call has read an outcome, and before it puts that into the cache, Delete or Resolve of this process changes it.
// It is not replayed from the cache then.
func TestForgottenOutcomeIsNotPutAgain(t *testing.T) {
	t.Parallel()
	c := cache{most: 1 << 20, keep: time.Hour, byRef: map[string]*list.Element{}}
	read := now()
	c.put("ref", &Outcome{}, read, time.Hour)
	require.NotNil(t, c.get("ref"))
	c.forget("ref")
	c.put("ref", &Outcome{}, read, time.Hour)
	require.Nil(t, c.get("ref"))
	for read = now(); !read.After(c.past.Time); read = now() {
	}
	c.put("ref", &Outcome{}, read, time.Hour)
	require.NotNil(t, c.get("ref"))
}
