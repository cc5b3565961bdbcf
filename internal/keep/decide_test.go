package keep

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhetherAPermitStays(t *testing.T) {
	t.Parallel()
	const keep = time.Second
	for name, c := range map[string]struct {
		at   idleness
		want bool
	}{
		"at once":               {idleness{quiet: true, trusted: true}, true},
		"idle":                  {idleness{quiet: true, trusted: true, idle: mostIdle - 1}, true},
		"idle for too long":     {idleness{quiet: true, trusted: true, idle: mostIdle}, false},
		"old":                   {idleness{quiet: true, trusted: true, age: keep - 1}, true},
		"too old":               {idleness{quiet: true, trusted: true, age: keep}, false},
		"others may wait":       {idleness{trusted: true}, false},
		"the lease may be lost": {idleness{quiet: true}, false},
	} {
		require.Equal(t, c.want, c.at.stays(keep), name)
	}
	require.False(t, idleness{quiet: true, trusted: true}.stays(0), "off")
}

func TestWhetherAPermitPasses(t *testing.T) {
	t.Parallel()
	const handover, keep = time.Second, time.Minute
	for name, c := range map[string]struct {
		at   idleness
		want bool
	}{
		"at once, whether or not others wait": {idleness{trusted: true}, true},
		"old":                                 {idleness{trusted: true, age: handover - 1}, true},
		"too old, and others may wait":        {idleness{trusted: true, age: handover}, false},
		"old, and no other waits":             {idleness{quiet: true, trusted: true, age: handover}, true},
		"too old to be kept":                  {idleness{quiet: true, trusted: true, age: keep}, false},
		"the lease may be lost":               {idleness{quiet: true}, false},
		"the limit was lowered":               {idleness{quiet: true, trusted: true, lowered: true}, false},
	} {
		require.Equal(t, c.want, c.at.passes(handover, keep), name)
	}
	require.False(t, idleness{quiet: true, trusted: true}.passes(0, 0), "off")
}

// A key that is evicted at the moment at which its holder releases it is not listed as idle for ever.
func TestEndedKeyIsNotListed(t *testing.T) {
	t.Parallel()
	k := &Keeper{base: time.Now()}
	k.keys.Store(&[]*Key{})
	c := &Key{keeper: k}
	c.holder.Store(ended)
	require.False(t, c.setIdle(&Holder{}, 0))
	require.Empty(t, *k.keys.Load())
}
