package idempotency

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// One row for each way through the picture in the comment of settling.
func TestSettling(t *testing.T) {
	t.Parallel()
	op := clientv3.OpPut("k", "v")
	attach := func(x *settling) { x.attach(nil, []clientv3.Op{op}) }
	begin := func(x *settling) { _, _, _ = x.begin() }
	done := func(x *settling) { x.end(ErrSettled, true, false, false) }
	do := func(steps ...func(*settling)) []func(*settling) { return steps }
	for name, c := range map[string]struct {
		do       []func(*settling)
		open     error
		attached int
		certain  bool // if trusted
		known    bool // final whatever the clocks say
	}{
		"open":                        {do: do()},
		"attached":                    {do: do(attach, attach), attached: 2},
		"attached and detached":       {do: do(attach, (*settling).detach)},
		"writing":                     {do: do(begin), open: ErrSettled, certain: true},
		"writing what was attached":   {do: do(attach, begin), open: ErrSettled, attached: 1},
		"refused":                     {do: do(attach, begin, (*settling).reopen)},
		"refused, and once more":      {do: do(attach, begin, (*settling).reopen, begin), open: ErrSettled, certain: true},
		"over":                        {do: do(begin, done), open: ErrSettled, certain: true, known: true},
		"over with what was attached": {do: do(attach, begin, done), open: ErrSettled, attached: 1, certain: true, known: true},
		"over, begun again":           {do: do(begin, done, begin), open: ErrSettled, certain: true, known: true},
		"fenced":                      {do: do(begin, func(x *settling) { x.end(ErrFenced, false, false, false) }), open: ErrFenced},
	} {
		t.Run(name, func(t *testing.T) {
			x := &settling{}
			for _, step := range c.do {
				step(x)
			}
			require.Equal(t, c.open, x.open())
			require.Len(t, x.then, c.attached)
			require.Equal(t, c.certain, x.certain(true))
			require.Equal(t, c.known, x.certain(false))
			left := false
			x.unlessOver(func() { left = true })
			require.Equal(t, x.over == nil, left)
			_, then, err := x.begin()
			require.Equal(t, c.open, err, "the one way to the end is open once")
			if err == nil {
				require.Len(t, then, c.attached)
			}
		})
	}
}

// What an operator should know is that of the end: a result that was left out at a try that failed is none.
func TestSettlingNotice(t *testing.T) {
	t.Parallel()
	why := errors.New("too large")
	x := &settling{}
	x.omitted(why)
	x.end(ErrSettled, true, false, true)
	unknown, unkept := x.notice()
	require.False(t, unknown)
	require.Equal(t, why, unkept)
	x.end(ErrSettled, false, true, false)
	unknown, unkept = x.notice()
	require.True(t, unknown)
	require.NoError(t, unkept)
}
