package verb

import (
	"context"
	"fmt"
	"io"
	"os"
)

// until returns what read returns, or ctx's error if that ends first: a read notices no signal. It continues then, until the
// process ends.
func until[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	got := make(chan answer, 1)
	go func() { value, err := read(); got <- answer{value, err} }()
	select {
	case a := <-got:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// Input returns what a file has, or standard input for "-". It returns an error if that has more than most bytes or cannot be read,
// and ctx's error if ctx ends first: a pipe that no process writes is not opened, and one that no process closes has no end.
func Input(ctx context.Context, name string, stdin io.Reader, most int64) ([]byte, error) {
	return until(ctx, func() ([]byte, error) {
		from := stdin
		if name != "-" {
			f, err := os.Open(name) //nolint:gosec // the file that is asked for
			if err != nil {
				return nil, err
			}
			defer func() { _ = f.Close() }()
			from = f
		}
		b, err := io.ReadAll(io.LimitReader(from, most+1))
		if err == nil && int64(len(b)) > most {
			err = fmt.Errorf("%s has more than %d bytes", name, most)
		}
		return b, err
	})
}
