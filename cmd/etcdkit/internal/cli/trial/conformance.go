package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/idempotency/conformance"
	"github.com/etcdkit/etcdkit/idempotency/idemtest"
)

// kept is the result of testing one promise.
type kept struct {
	Name   string         `json:"name"`
	Of     string         `json:"of"` // the package
	Text   string         `json:"text"`
	Result string         `json:"result"` // kept, broken or not tested
	Error  string         `json:"error,omitempty"`
	Took   output.Seconds `json:"duration_seconds"`

	try func(context.Context) error
}

// Conformance returns the verb conformance.
func Conformance(c *verb.Call) *cobra.Command {
	var only []string
	var list bool
	var d time.Duration
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Test on your own cluster that etcdkit's promises are kept",
		Long: `Test on your own cluster, with your TLS and users, that the promises of packages concurrency and
idempotency are kept. --list names them.

Each promise is tested below a prefix of its own with a random part, --prefix/.../etcdkit-conformance-…; at
the end, also when the command is interrupted, its keys and leases are removed. The user needs read and
write permission for --prefix. All promises together send a few thousand requests, and one result of
10 MiB. Leases of the test's own sessions are revoked; servers get only requests that any client may send.

The exit code is 1 if a promise is broken.`,
		Example: "etcdkit conformance --list\netcdkit conformance --yes\netcdkit conformance --yes --only Limit,Order,Guard",
		Args:    verb.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case d <= 0:
				return exit.Usagef("--duration %v is not positive", d)
			case len(only) == 0 && cmd.Flags().Changed("only"): // as of a variable of a script that is not set
				return exit.Usagef("--only is empty")
			}
			all, err := promises(c, only, d)
			if err != nil {
				return err
			}
			if list {
				return c.Print(promisesOf(all), func(t *output.Table) {
					for _, p := range all {
						t.Row(p.Of, p.Name, p.Text)
					}
				})
			}
			if err := c.Confirm(cmd.Context(), fmt.Sprintf("Test %d promises on etcd at %s, below prefixes of their own", len(all),
				strings.Join(c.Etcd.Endpoints, ","))); err != nil {
				return err
			}
			if err := reach(cmd.Context(), c); err != nil {
				return err
			}
			tryAll(cmd.Context(), c, all)
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			return reportPromises(c, all)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&only, "only", nil, "test these promises only")
	f.BoolVar(&list, "list", false, "list the promises, and test nothing")
	f.DurationVar(&d, "duration", 5*time.Second, "how long the promise Limit is tested")
	return cmd
}

func promisesOf(all []*kept) any {
	return struct {
		output.Form
		Promises []*kept `json:"promises"`
	}{output.FormOf("conformance"), all}
}

// promises returns the promises with these names, or all.
func promises(c *verb.Call, only []string, d time.Duration) (all []*kept, err error) {
	missing := slices.Clone(only)
	add := func(of, name, text string, try func(context.Context) error) {
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == name })
		if len(only) == 0 || slices.Contains(only, name) {
			all = append(all, &kept{Name: name, Of: of, Text: text, Result: "not tested", try: try})
		}
	}
	for _, p := range promisesOfPermits {
		add("concurrency", p.name, p.text, func(ctx context.Context) error {
			return inScratch(ctx, c, "conformance", func(ctx context.Context, s *scratch) error { return p.try(ctx, s, d) })
		})
	}
	prefix := strings.TrimRight(c.Etcd.Prefix, "/") + "/" + unique("conformance") + "/"
	for _, p := range conformance.Promises() {
		add("idempotency", p.Name, p.Text, func(ctx context.Context) error {
			config, err := c.Etcd.ClientConfig(ctx)
			if err != nil {
				return err
			}
			return p.Check(ctx, *config, idemtest.Store(idemtest.Options{}), &conformance.Options{Prefix: prefix})
		})
	}
	if len(missing) > 0 {
		return nil, exit.Usagef("--only %s: no such promise; --list names them", strings.Join(missing, ","))
	}
	return all, nil
}

// tryAll tests promises, some at a time, and shows progress.
func tryAll(ctx context.Context, c *verb.Call, all []*kept) {
	p, done := c.Progress(), 0
	defer p.End()
	var mu sync.Mutex
	var running sync.WaitGroup
	turns := make(chan struct{}, 4)
	for _, k := range all {
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			if ctx.Err() != nil {
				return
			}
			began := time.Now()
			err := k.try(ctx)
			mu.Lock()
			defer mu.Unlock()
			k.Took = output.Seconds(time.Since(began))
			switch {
			case err == nil:
				k.Result = "kept"
			case errors.Is(err, errors.ErrUnsupported):
				k.Error = err.Error()
			default:
				k.Result, k.Error = "broken", err.Error()
			}
			done++
			p.Set("%d of %d promises tested", done, len(all))
		})
	}
	running.Wait()
}

// reportPromises prints the results, and returns an error if a promise is broken.
func reportPromises(c *verb.Call, all []*kept) error {
	broken := 0
	for _, k := range all {
		if k.Result == "broken" {
			broken++
		}
	}
	err := c.Print(promisesOf(all), func(t *output.Table) {
		t.Row("PROMISE", "RESULT", "TOOK", "TEXT")
		for _, k := range all {
			text := k.Text
			if k.Error != "" {
				text += "; but: " + k.Error
			}
			t.Row(k.Of+" "+k.Name, k.Result, fmt.Sprintf("%.1fs", time.Duration(k.Took).Seconds()), text)
		}
	})
	if err == nil && broken > 0 {
		err = exit.Errorf(exit.Failed, "promises that are not kept on this cluster: %d of %d", broken, len(all))
	}
	return err
}
