package trial

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
)

func TestSummarize(t *testing.T) {
	var took []time.Duration
	for n := range 200 {
		took = append(took, time.Duration(200-n)*time.Millisecond)
	}
	require.Equal(t, measured{"x", 3, 200, 100, output.Seconds(100 * time.Millisecond), output.Seconds(180 * time.Millisecond), output.Seconds(198 * time.Millisecond), output.Seconds(200 * time.Millisecond)},
		summarize("x", 3, took, 2*time.Second))
	require.Equal(t, measured{Name: "x", Clients: 1}, summarize("x", 1, nil, 0))
	one := summarize("x", 1, []time.Duration{time.Second}, time.Second)
	require.Equal(t, one.P50, one.Most)
}

// An operation that fails ends the measurement with its error.
func TestRepeatFails(t *testing.T) {
	wrong := errors.New("wrong")
	took, _, err := repeat(t.Context(), 3, time.Hour, time.Hour, func(ctx context.Context, client, n int) error {
		if client == 1 && n == 2 {
			return wrong
		}
		return nil
	})
	require.ErrorIs(t, err, wrong)
	require.NotEmpty(t, took)
}
