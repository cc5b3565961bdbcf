package console

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Viewers that leave before their page is read leave a bounded number of readings.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	s := shared{session: t.Context()}
	gone, leave := context.WithCancel(t.Context())
	leave()
	release := make(chan struct{})
	var ended sync.WaitGroup
	begin := func(i int) error {
		ended.Add(1)
		_, err := s.get(gone, fmt.Sprint(i), readEvery, func(context.Context) (any, error) { defer ended.Done(); <-release; return i, nil })
		if err == errBusy { // as it is
			ended.Done()
		}
		return err
	}
	for i := range maxReads {
		require.ErrorIs(t, begin(i), context.Canceled)
	}
	require.ErrorIs(t, begin(maxReads), errBusy)
	require.ErrorIs(t, begin(0), context.Canceled, "one that is being read is shared")
	ended.Done() // its function is not called
	close(release)
	ended.Wait()
	for { // until the last one is counted
		v, err := s.get(t.Context(), "again", readEvery, func(context.Context) (any, error) { return "read", nil })
		if err == nil {
			require.Equal(t, "read", v.value)
			return
		}
		require.ErrorIs(t, err, errBusy)
	}
}

// A read that took long is repeated seldom, and one that failed soon.
func TestReadsAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := shared{session: t.Context()}
		n := 0
		read := func(fails error) (any, error) {
			v, err := s.get(t.Context(), "page", readEvery, func(context.Context) (any, error) { time.Sleep(4 * time.Second); n++; return n, fails })
			return v.value, err
		}
		_, err := read(context.DeadlineExceeded)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(readEvery + time.Millisecond)
		for range 4 {
			v, err := read(nil)
			require.NoError(t, err)
			require.Equal(t, 2, v)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(6 * time.Second)
		_, err = read(nil)
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		v, err := read(nil)
		require.NoError(t, err)
		require.Equal(t, 3, v)
	})
}

// What was read before is returned if the next read fails or takes long, with the time of it, and a later read
// replaces it.
func TestReadsDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := shared{session: t.Context()}
		begun := time.Now()
		read := func(value string, takes time.Duration, err error) (found, error) {
			return s.get(t.Context(), "page", readEvery, func(context.Context) (any, error) { time.Sleep(takes); return value, err })
		}
		f, err := read("first", 0, nil)
		require.NoError(t, err)
		require.Equal(t, found{"first", begun, nil}, f)
		for range 3 {
			time.Sleep(readEvery + time.Millisecond)
			f, err = read("", 0, errBusy)
			require.NoError(t, err)
			require.Equal(t, found{"first", begun, errBusy}, f)
		}
		time.Sleep(readEvery + time.Millisecond)
		asked := time.Now()
		f, err = read("slow", 5*time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, found{"first", begun, errBusy}, f)
		require.Equal(t, patience, time.Since(asked))
		f, err = read("never called", 0, nil)
		require.NoError(t, err)
		require.Equal(t, found{"first", begun, errBusy}, f, "those after it do not wait as well")
		require.Equal(t, patience, time.Since(asked))
		time.Sleep(5 * time.Second)
		f, err = read("never called", 0, nil)
		require.NoError(t, err)
		require.Equal(t, found{"slow", asked, nil}, f)
		time.Sleep(idlePart * 5 * time.Second)
		f, err = read("late", 5*time.Second, nil)
		require.NoError(t, err)
		require.Equal(t, found{"slow", asked, nil}, f, "etcd has answered until now")
		time.Sleep(5 * time.Second)
	})
}

// Above the bound, the page that was requested least recently is forgotten, and no other one.
func TestForgetsTheLeastRecentPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := shared{session: t.Context()}
		reads := map[string]int{}
		read := func(key string) {
			time.Sleep(time.Millisecond)
			_, err := s.get(t.Context(), key, time.Hour, func(context.Context) (any, error) { reads[key]++; return key, nil })
			require.NoError(t, err)
		}
		read("viewed")
		read("left")
		for i := range maxPages - 2 {
			read(fmt.Sprint(i))
		}
		read("viewed")
		read("new")
		require.Len(t, s.pages, maxPages)
		require.NotContains(t, s.pages, "left")
		read("viewed")
		read("0")
		require.Equal(t, []int{1, 1, 1}, []int{reads["viewed"], reads["new"], reads["0"]}, "they were remembered")
		read("left")
		require.Equal(t, 2, reads["left"])
	})
}

// hurry is a value that is read again soon.
type hurry bool

func (h hurry) urgent() bool { return bool(h) }

// What shows that something is wrong is read again soon, however long it took.
func TestUrgentReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := shared{session: t.Context()}
		read := func(h hurry) any {
			f, err := s.get(t.Context(), "page", readEvery, func(context.Context) (any, error) { time.Sleep(4 * time.Second); return h, nil })
			require.NoError(t, err)
			return f.value
		}
		require.Equal(t, hurry(true), read(true))
		time.Sleep(readEvery + time.Millisecond)
		read(false) // begins the next one, and waits for a moment
		time.Sleep(4 * time.Second)
		require.Equal(t, hurry(false), read(true))
		time.Sleep(30 * time.Second)
		require.Equal(t, hurry(false), read(true), "it took long, so it is not read again yet")
	})
}
