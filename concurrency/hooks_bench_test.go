package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/observe"
)

// BenchmarkHooks acquires and releases a permit, from etcd and one that its process keeps, in a session
// without hooks and in one whose hooks do nothing.
func BenchmarkHooks(b *testing.B) {
	f := shared(b)
	ctx := context.Background()
	nothing := observe.Hooks{
		Start: func(ctx context.Context, _ observe.Call) (context.Context, func(observe.Outcome)) {
			return ctx, func(observe.Outcome) {}
		},
		Event: func(context.Context, observe.Event) {},
	}
	for name, hooks := range map[string][]observe.Hooks{"none": nil, "empty": {nothing}} {
		opts := idle()
		opts.Hooks = hooks
		s, _ := f.Session(opts)
		for what, keep := range map[string]time.Duration{"asked": 0, "kept": time.Hour} {
			sm := keeping(b, s, what+name, 8, keep)
			b.Run(what+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					p, err := sm.Acquire(ctx)
					require.NoError(b, err)
					require.NoError(b, p.Release(ctx))
				}
			})
		}
	}
}
