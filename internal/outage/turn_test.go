package outage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTurn(t *testing.T) {
	t.Parallel()
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	for _, c := range []struct {
		name string
		k    known
		want Turn
	}{
		{"etcd answers", known{now: at(9), asked: at(9)}, Ask},
		{"etcd has never been asked", known{now: at(9)}, Ask},
		{"an outage, and another request has just asked", known{out: true, now: at(9), asked: at(9)}, Refuse},
		{"almost a second ago", known{out: true, now: at(9.999), asked: at(9)}, Refuse},
		{"a second ago", known{out: true, now: at(10), asked: at(9)}, Probe},
		{"no request came for an hour", known{out: true, now: at(3600), asked: at(9)}, Probe},
		{"the session was answered before that", known{out: true, now: at(9.5), asked: at(9), answered: at(8)}, Refuse},
		{"the session was answered at that moment", known{out: true, now: at(9.5), asked: at(9), answered: at(9)}, Refuse},
		{"the session was answered since", known{out: true, now: at(9.5), asked: at(9), answered: at(9.4)}, Probe},
	} {
		require.Equal(t, c.want, c.k.turn(), c.name)
	}
}

func TestSilent(t *testing.T) {
	t.Parallel()
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	for _, c := range []struct {
		name              string
		since, last, from time.Time
		want              bool
	}{
		{"nothing since then", at(3), at(2), at(5), true},
		{"nothing since that moment", at(5), at(5), at(5), true},
		{"never anything", at(5), time.Time{}, at(5), true},
		{"the silence is shorter", at(6), at(2), at(5), false},
		{"another request was answered", at(3), at(6), at(5), false},
		{"both", at(6), at(6), at(5), false},
	} {
		require.Equal(t, c.want, silent(c.since, c.last, c.from), c.name)
	}
}
