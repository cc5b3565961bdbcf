package aesgcm_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/aesgcm"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func newKey() []byte {
	key := make([]byte, aesgcm.KeySize)
	_, _ = rand.Read(key)
	return key
}

func codec(t testing.TB, id string, key []byte) idempotency.Codec {
	t.Helper()
	c, err := aesgcm.New(id, key)
	require.NoError(t, err)
	return c
}

// A program that drops the error of New has no Store (A425 in internal/proof/tested-failures.md): its Store would have stored
// results in the clear, since a nil Codec is none.
func TestDroppedError(t *testing.T) {
	t.Parallel()
	s, _ := testkit.Shared(t).Session(nil)
	c, err := aesgcm.New("2026-01", newKey()[:16])
	require.Error(t, err)
	require.Empty(t, fmt.Sprint(c))
	for _, opts := range []idempotency.Options{{Codec: c}, {OldCodecs: []idempotency.Codec{c}}} {
		_, err = idempotency.NewStore(s, "payments", &opts)
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		require.ErrorContains(t, err, "Options.Codec")
	}
}

// What was encrypted for one request is not decrypted for another one, with another key, or changed.
func TestCodec(t *testing.T) {
	t.Parallel()
	key := newKey()
	c, same, other := codec(t, "2026-01", key), codec(t, "2026-01", key), codec(t, "2026-02", newKey())
	clear(key) // it keeps a copy
	require.Equal(t, "aes-256-gcm/2026-01", c.Name())
	require.Equal(t, "aes-256-gcm/2026-01 aes-256-gcm/2026-01 aes-256-gcm/2026-01", fmt.Sprintf("%v %+v %#v", c, c, c))
	about := []byte("request 1")
	for _, plain := range [][]byte{{}, []byte("paid"), bytes.Repeat([]byte("x"), 1<<20)} {
		stored, err := c.Encode(plain, about)
		require.NoError(t, err)
		again, err := c.Encode(plain, about)
		require.NoError(t, err)
		require.NotEqual(t, stored, again)
		if len(plain) > 0 {
			require.NotContains(t, string(stored), string(plain))
		}
		for _, by := range []idempotency.Codec{c, same} {
			back, err := by.Decode(stored, about)
			require.NoError(t, err)
			require.Equal(t, string(plain), string(back))
		}
		_, err = c.Decode(stored, []byte("request 2"))
		require.Error(t, err, "of another request")
		_, err = other.Decode(stored, about)
		require.Error(t, err, "with another key")
		for i := 0; i < len(stored); i += max(1, len(stored)/100) {
			changed := bytes.Clone(stored)
			changed[i] ^= 1
			_, err = c.Decode(changed, about)
			require.Error(t, err, "byte %d", i)
			_, err = c.Decode(stored[:i], about)
			require.Error(t, err, "%d bytes", i)
		}
		_, err = c.Decode(append(stored, 0), about)
		require.Error(t, err)
	}
}

// The stored form, as the first release has written it.
func TestGolden(t *testing.T) {
	t.Parallel()
	const text = "AX+b7566Xub6+T7XFqYdPizlVG5FPNsEc4VCP/ANDbXy3nzM01F/wfP+wOJ+C/anFN9Jkwq3HIUdYmBYZwNi/os="
	stored, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	plain, err := codec(t, "golden", bytes.Repeat([]byte{7}, aesgcm.KeySize)).Decode(stored, []byte("about"))
	require.NoError(t, err)
	require.Equal(t, "paid", string(plain))
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		id  string
		key []byte
	}{
		"16 bytes": {"a", newKey()[:16]}, "no key": {"a", nil}, "33 bytes": {"a", make([]byte, 33)}, "zeros": {"a", make([]byte, aesgcm.KeySize)},
		"no id": {"", newKey()}, "a long id": {string(bytes.Repeat([]byte("a"), 49)), newKey()}, "a space": {"a b", newKey()}, "a rune": {"ä", newKey()},
	} {
		_, err := aesgcm.New(tt.id, tt.key)
		require.ErrorIs(t, err, idempotency.ErrInvalid, name)
		require.ErrorContains(t, err, "aesgcm: new codec", name)
	}
}

func BenchmarkCodec(b *testing.B) {
	c := codec(b, "a", newKey())
	for _, size := range []int{100, 10 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			plain := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				stored, err := c.Encode(plain, nil)
				require.NoError(b, err)
				_, err = c.Decode(stored, nil)
				require.NoError(b, err)
			}
		})
	}
}
