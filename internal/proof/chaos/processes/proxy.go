package processes

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/chaos"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// ProxyStopped is the act of a stopped proxy. When it continues it can answer a renewal with what an older one gave,
// so a session behind it may trust its lease for too long.
const ProxyStopped = "proxy stopped"

// Those that need a proxy. The first client is behind it then, all others are not.
const (
	killProxy = "kill-proxy"
	stopProxy = "stop-proxy"
)

// proxied reports whether there is a proxy.
func (c Config) proxied() bool {
	return slices.Contains(c.Nemeses, killProxy) || slices.Contains(c.Nemeses, stopProxy)
}

// behind reports whether a session, by its name, is behind the proxy.
func (r *run) behind(session string) bool { return r.proxied() && strings.HasPrefix(session, "c0.") }

// killProxy kills the proxy and starts it again: at once, or when the nemesis ends.
func (r *run) killProxy(ctx context.Context, rnd *rand.Rand) int {
	stays := rnd.IntN(2) == 0
	r.proxying.Lock()
	defer r.proxying.Unlock()
	r.proxy.Process().Kill()
	if stays {
		<-ctx.Done()
	}
	r.mend("the proxy", r.proxy.Restart)
	r.recorder.Count(proxiesKilled, 1)
	return 1
}

// stopProxy stops the proxy again and again, for less than a TTL or for longer.
func (r *run) stopProxy(ctx context.Context, rnd *rand.Rand) (stopped int) {
	for {
		d := time.Duration(rnd.Int64N(int64(r.TTL + time.Second)))
		r.proxying.Lock()
		finish := r.recorder.Begin(history.Event{Name: ProxyStopped})
		if r.proxy.Process().Pause() == nil {
			_ = chaos.Sleep(ctx, d)
			_ = r.proxy.Process().Resume()
			r.recorder.Count(proxiesStopped, 1)
			stopped++
		}
		finish()
		r.proxying.Unlock()
		if chaos.Sleep(ctx, time.Duration(200+rnd.IntN(800))*time.Millisecond) != nil {
			return stopped
		}
	}
}
