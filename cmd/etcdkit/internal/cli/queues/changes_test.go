package queues

import (
	"testing"

	"github.com/etcdkit/etcdkit/internal/record"
)

// A name is that of a queue, or of a limiter with its keys, and no kind.
func TestChangesOfAName(t *testing.T) {
	t.Parallel()
	for of, want := range map[[2]string]bool{
		{"limiter/api", "api"}: true, {"limiter/api", "limiter/api"}: true, {"limiter/api/eu", "api"}: true, {"limiter/api/eu", "limiter/api"}: true,
		{"limiter/api", "limiter"}: false, {"limiter/api/eu", "limiter"}: false, {"mutex/limiter", "limiter"}: true,
		{"semaphore/api/eu", "api"}: false, {"limiter/apis", "api"}: false, {"semaphore/api", ""}: true,
	} {
		if got := isOf(record.Change{Name: of[0]}, of[1]); got != want {
			t.Errorf("changes of %s with the name %q: %t, want %t", of[0], of[1], got, want)
		}
	}
}
