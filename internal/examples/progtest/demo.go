package progtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
)

// Run runs a demo in this process: its servers are processes of their own. It returns the last line of its
// output. With the flag -metrics, a scrape must show published.
func Run[Config any, Outcome any, Writer interface {
	*Outcome
	Write(io.Writer)
}](t *testing.T, parse func([]string, io.Writer) (Config, error), run func(context.Context, Config, io.Writer) (Writer, error), published []string, args ...string) (last Outcome) {
	t.Helper()
	c, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var text, out bytes.Buffer
	progress := io.Writer(&text)
	if strings.Contains(strings.Join(args, " "), "-metrics") {
		progress = Scrape(t, progress, published...)
	}
	o, err := run(t.Context(), c, progress)
	if errors.Is(err, embedtest.ErrExternal) {
		t.Skipf("the demo starts a cluster of its own: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	o.Write(&out)
	t.Logf("%s%s", &text, &out)
	LastLine(t, out.String(), &last)
	return last
}

// Frame tests what every demo does: it ends all its processes when it is interrupted, refuses an address of
// -metrics that is in use before it starts anything, and says so if there is no etcd.
func Frame(t *testing.T, name string, args ...string) {
	t.Parallel()
	t.Run("interrupted", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it interrupts a run somewhere in its first seconds")
		}
		if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
			t.Skip("the demo may break an etcd of its own")
		}
		t.Parallel()
		New(t, args...).Interrupted()
	})
	t.Run("metrics in use", func(t *testing.T) {
		t.Parallel()
		New(t).MetricsInUse()
	})
	t.Run("no etcd", func(t *testing.T) {
		t.Parallel()
		New(t, "-endpoints", "127.0.0.1:1", "-timeout", "1s").Ends(1, name+": not done after 1s")
	})
}

// Flags tests which arguments a demo takes.
func Flags[Config any](t *testing.T, parse func([]string, io.Writer) (Config, error), good map[string]bool) {
	t.Helper()
	for args, ok := range good {
		if _, err := parse(strings.Fields(args), io.Discard); (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
}
