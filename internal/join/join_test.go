package join_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/join"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	a, b := errors.New("a"), &fs.PathError{Op: "open", Path: "b", Err: fs.ErrNotExist}
	require.NoError(t, join.Errors())
	require.NoError(t, join.Errors(nil, nil))
	require.Same(t, a, join.Errors(nil, a))

	err := fmt.Errorf("x: %w", join.Errors(a, nil, join.Errors(b, context.Canceled)))
	require.EqualError(t, err, "x: a; open b: file does not exist; context canceled")
	for _, is := range []error{a, fs.ErrNotExist, context.Canceled} {
		require.ErrorIs(t, err, is)
	}
	var path *fs.PathError
	require.ErrorAs(t, err, &path)
	require.NotErrorIs(t, err, fs.ErrExist)
}

// Also leaves the text alone.
func TestAlso(t *testing.T) {
	t.Parallel()
	one, two := errors.New("one"), &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}
	err := join.Also(one, two)
	require.Equal(t, "one", err.Error())
	require.ErrorIs(t, err, one)
	require.ErrorIs(t, err, fs.ErrNotExist)
	var path *fs.PathError
	require.ErrorAs(t, err, &path)
}
