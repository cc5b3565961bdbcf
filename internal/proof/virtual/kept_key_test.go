package virtual

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// noWatch has the process's watches bring nothing from now on, without an error.
func (d *desk) noWatch() {
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if m.Method == "Watch" && m.Response {
			return etcdfake.Fault{ResponseDelay: time.Hour}
		}
		return etcdfake.Fault{}
	})
}

const queueRange = root + gate + "/queue/"

// deleteKeys deletes all requests by hand.
func deleteKeys(d *desk) {
	d.t.Helper()
	_, err := d.client.Delete(d.t.Context(), queueRange, clientv3.WithPrefix())
	require.NoError(d.t, err)
}

// A87: the key of a kept permit is deleted by hand. No call gets it once the deletion is known: at once, or
// when etcd has been asked next, if the watch brings nothing.
func TestKeptKeyIsDeleted(t *testing.T) {
	t.Parallel()
	for name, watch := range map[string]bool{"the watch brings it": true, "the watch brings nothing": false} {
		for _, limit := range []int{1, 3, 40} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				bubble(t, 2, func(t *testing.T, on []*desk) {
					d := on[0]
					sem := d.keeping(limit, time.Hour)
					d.use(sem)
					synctest.Wait()
					var held []*concurrency.Permit
					for range limit {
						held = append(held, d.get(sem))
					}
					for _, p := range held {
						require.NoError(t, p.Release(t.Context()))
					}
					require.Equal(t, limit, d.held(), "all are kept")
					if !watch {
						d.noWatch()
					}
					deleteKeys(d)
					synctest.Wait()
					begun := time.Now()
					var others []*concurrency.Permit
					for range limit {
						others = append(others, on[1].get(on[1].semaphore(limit)))
					}
					for time.Since(begun) < 3*time.Second {
						held = held[:0]
						for range limit { // all stay in use, so that none is released for being idle
							p, err := sem.TryAcquire(within(t, time.Millisecond))
							if err != nil {
								break
							}
							require.False(t, watch, "granted although the deletion was seen")
							require.LessOrEqual(t, time.Since(begun), 600*time.Millisecond)
							held = append(held, p)
						}
						for _, p := range held {
							if err := p.Release(t.Context()); err != nil { // etcd's answer came in this moment
								require.False(t, watch)
								require.ErrorIs(t, err, concurrency.ErrLost)
							}
						}
						time.Sleep(5 * time.Millisecond)
					}
					for _, p := range others {
						require.NoError(t, p.Release(t.Context()))
					}
					d.use(sem)
				})
			})
		}
	}
}

// A kept permit has one caller: another call gets it after the Release of the first, and not before.
func TestKeptKeyHasOneCaller(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(1, time.Hour)
		d.warm(sem)
		for range 3 {
			p := d.get(sem)
			_, err := sem.TryAcquire(within(t, time.Millisecond))
			require.ErrorIs(t, err, concurrency.ErrFull)
			require.NoError(t, p.Err())
			require.NoError(t, p.Release(t.Context()))
			time.Sleep(time.Second) // the refused call has asked etcd: until that is past, nothing is kept
			d.warm(sem)
		}
	})
}

// A87: so it is while a call has the permit: it is lost, as its Release says.
func TestKeptKeyIsDeletedInUse(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(1, time.Hour)
		d.warm(sem)
		p := d.get(sem)
		deleteKeys(d)
		ended(t, p)
		require.ErrorIs(t, p.Err(), concurrency.ErrLost)
		require.ErrorContains(t, p.Err(), "its key was deleted")
		require.ErrorIs(t, p.Release(t.Context()), concurrency.ErrLost)
		d.warm(sem)
	})
}

// A87: nor does a permit pass to a call in the local queue, if the queue shows that its key is gone.
func TestDeletedKeyDoesNotPass(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.passing(1, 30*time.Second)
		p := d.get(sem)
		next := make(chan *concurrency.Permit, 2)
		for range 2 {
			go func() {
				if p, err := sem.Acquire(t.Context()); err == nil {
					next <- p
				}
			}()
		}
		synctest.Wait()
		_, err := d.client.Delete(t.Context(), d.server.Keys(queueRange)[0])
		require.NoError(t, err)
		synctest.Wait()
		first := <-next // its own request was admitted
		require.ErrorIs(t, p.Release(t.Context()), concurrency.ErrLost)
		synctest.Wait()
		require.Empty(t, next)
		require.NoError(t, first.Release(t.Context()))
		require.NoError(t, (<-next).Release(t.Context()))
	})
}
