package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// TestLayoutAgreesWithKeyspace: what the product writes is read here as what it is,
// by a parser that shares nothing with it.
func TestLayoutAgreesWithKeyspace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		space, err := keyspace.New("/pre", "ns")
		require.NoError(t, err)
		name := rapid.StringMatching(`[a-zA-Z0-9 %._-]{1,12}`).Draw(t, "name")
		kind := rapid.SampledFrom([]keyspace.Kind{keyspace.Semaphore, keyspace.Mutex, keyspace.Election}).Draw(t, "kind")
		gate := space.Queue(kind, name)
		label := strings.TrimSuffix(strings.TrimPrefix(gate.Range, space.Root()), "/")
		parse := func(key string) parsedKey { return parseEtcdkit(strings.TrimPrefix(key, space.Root())) }

		slot := keyspace.Slot{Lease: rapid.Int64().Draw(t, "lease"), Number: rapid.IntRange(0, keyspace.MaxSlot).Draw(t, "number"),
			Weight: int64(rapid.IntRange(1, 1<<31-1).Draw(t, "weight")), Try: rapid.Bool().Draw(t, "try")}
		require.Equal(t, parsedKey{kind: keyRequest, gate: label, weight: slot.Weight, lease: slot.Lease, slot: name16(slot), try: slot.Try}, parse(gate.Slot(slot)))
		require.Equal(t, parsedKey{kind: keyID, gate: label}, parse(gate.ID(rapid.StringN(1, 10, 50).Draw(t, "id"))))
		if kind == keyspace.Semaphore {
			require.Equal(t, parsedKey{kind: keyLimit, gate: label}, parse(gate.Limit))
		}
		limiter := space.Limiter(name)
		key := limiter.Key(rapid.StringN(1, 10, 50).Draw(t, "key"))
		of := strings.TrimSuffix(strings.TrimPrefix(limiter.Range, space.Root()), "/")
		each := strings.TrimSuffix(strings.TrimPrefix(key.Range, space.Root()), "/")
		require.Equal(t, of, limiterEtcdkit(each))
		require.Equal(t, parsedKey{kind: keyRequest, gate: each, weight: slot.Weight, lease: slot.Lease, slot: name16(slot), try: slot.Try}, parse(key.Slot(slot)))
		require.Equal(t, parsedKey{kind: keyID, gate: each}, parse(key.ID(rapid.StringN(1, 10, 50).Draw(t, "id"))))
		require.Equal(t, parsedKey{kind: keyLimit, gate: each}, parse(key.Limit))
		require.Equal(t, parsedKey{kind: keyDefault, gate: of}, parse(limiter.Default))
		total := limiter.Total()
		all := strings.TrimSuffix(strings.TrimPrefix(total.Range, space.Root()), "/")
		require.Equal(t, all, totalEtcdkit(each))
		require.Empty(t, totalEtcdkit(all))
		require.Equal(t, parsedKey{kind: keyRequest, gate: all, weight: slot.Weight, lease: slot.Lease, slot: name16(slot), try: slot.Try}, parse(total.Slot(slot)))
		require.Equal(t, parsedKey{kind: keyLimit, gate: all}, parse(total.Limit))
		session := space.Session(slot.Lease)
		require.Equal(t, parsedKey{kind: keyAlive, lease: slot.Lease}, parse(session.Alive()))
		request := key.Slot(slot)
		below := strings.TrimPrefix(request, space.Root())
		require.Equal(t, parsedKey{kind: keyNotice, lease: slot.Lease, token: 77, request: below}, parse(session.Notice(77, request)))
		require.Equal(t, parsedKey{kind: keyStop, lease: slot.Lease, token: 77, request: below}, parse(session.Stop(77, request)))

		job := space.Job(name)
		label = strings.TrimSuffix(strings.TrimPrefix(job.Range, space.Root()), "/")
		tick := time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "tick"))
		require.Equal(t, parsedKey{kind: keyJobRun, gate: label, tick: stampOf(tick)}, parse(job.Run(tick)))
		require.Equal(t, parsedKey{kind: keyJobFloor, gate: label, tick: stampOf(tick)}, parse(job.Floor(tick)))
		for key, kind := range map[string]keyKind{job.Lock(): keyJobLock, job.Cooldown(): keyJobCooldown, job.Pause(): keyJobPause, job.Settings(): keyJobSettings} {
			require.Equal(t, parsedKey{kind: kind, gate: label}, parse(key))
		}
		require.Equal(t, parsedKey{kind: keyClock, lease: slot.Lease}, parse(space.Clock(slot.Lease)))

		// And what it refuses is a foreign key here too.
		strange := gate.Requests + rapid.StringMatching(`(light|heavy/[0-9]{1,11})/[0-9a-fA-F]{15,17}-[0-9a-f]{3,5}(-try|-)?`).Draw(t, "strange")
		parsed, ours := gate.ParseSlot(strange)
		if got := parse(strange); ours {
			require.Equal(t, keyRequest, got.kind)
			require.Equal(t, parsed.Weight, got.weight)
		} else {
			require.Equal(t, keyOther, got.kind, strange)
		}
	})
}

func name16(s keyspace.Slot) string { return fmt.Sprintf("%016x-%04x", uint64(s.Lease), s.Number) }

func TestLayoutOfEtcd(t *testing.T) {
	t.Parallel()
	require.Equal(t, parsedKey{kind: keyRequest, gate: "mutex/up", weight: 1, lease: 0x694d}, parseEtcd("mutex/up/694d"))
	require.Equal(t, keyOther, parseEtcd("mutex").kind)
}
