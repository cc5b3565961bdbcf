package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/idempotency/conformance"
	"github.com/etcdkit/etcdkit/idempotency/idemtest"
)

// kept is the result of testing one promise.
type kept struct {
	Name   string  `json:"name"`
	Of     string  `json:"of"` // the package
	Text   string  `json:"text"`
	Result string  `json:"result"` // kept, broken or not tested
	Error  string  `json:"error,omitempty"`
	Took   seconds `json:"duration_seconds"`

	try func(context.Context) error
}

func (a *app) conformance() *cobra.Command {
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
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case d <= 0:
				return usageError{fmt.Errorf("--duration %v is not positive", d)}
			case len(only) == 0 && cmd.Flags().Changed("only"): // as of a variable of a script that is not set
				return usageError{errors.New("--only is empty")}
			}
			all, err := a.promises(only, d)
			if err != nil {
				return err
			}
			if list {
				return a.print(promisesOf(all), func(t *table) {
					for _, p := range all {
						t.row(p.Of, p.Name, p.Text)
					}
				})
			}
			if err := a.confirm(cmd.Context(), fmt.Sprintf("Test %d promises on etcd at %s, below prefixes of their own", len(all), strings.Join(a.etcd.Endpoints, ","))); err != nil {
				return err
			}
			if err := a.reach(cmd.Context()); err != nil {
				return err
			}
			a.tryAll(cmd.Context(), all)
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			return a.reportPromises(all)
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
		schema
		Promises []*kept `json:"promises"`
	}{schemaOf("conformance"), all}
}

// promises returns the promises with these names, or all.
func (a *app) promises(only []string, d time.Duration) (all []*kept, err error) {
	missing := slices.Clone(only)
	add := func(of, name, text string, try func(context.Context) error) {
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == name })
		if len(only) == 0 || slices.Contains(only, name) {
			all = append(all, &kept{Name: name, Of: of, Text: text, Result: "not tested", try: try})
		}
	}
	for _, p := range promisesOfPermits {
		add("concurrency", p.name, p.text, func(ctx context.Context) error {
			return a.scratch(ctx, "conformance", func(ctx context.Context, s *scratch) error { return p.try(ctx, s, d) })
		})
	}
	prefix := strings.TrimRight(a.etcd.prefix, "/") + "/" + unique("conformance") + "/"
	for _, p := range conformance.Promises() {
		add("idempotency", p.Name, p.Text, func(ctx context.Context) error {
			config, err := a.etcd.config(ctx)
			if err != nil {
				return err
			}
			return p.Check(ctx, *config, idemtest.Store(idemtest.Options{}), &conformance.Options{Prefix: prefix})
		})
	}
	if len(missing) > 0 {
		return nil, usageError{fmt.Errorf("--only %s: no such promise; --list names them", strings.Join(missing, ","))}
	}
	return all, nil
}

// tryAll tests promises, some at a time, and shows progress.
func (a *app) tryAll(ctx context.Context, all []*kept) {
	p, done := a.progress(), 0
	defer p.end()
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
			k.Took = seconds(time.Since(began))
			switch {
			case err == nil:
				k.Result = "kept"
			case errors.Is(err, errors.ErrUnsupported):
				k.Error = err.Error()
			default:
				k.Result, k.Error = "broken", err.Error()
			}
			done++
			p.set("%d of %d promises tested", done, len(all))
		})
	}
	running.Wait()
}

// reportPromises prints the results, and returns an error if a promise is broken.
func (a *app) reportPromises(all []*kept) error {
	broken := 0
	for _, k := range all {
		if k.Result == "broken" {
			broken++
		}
	}
	err := a.print(promisesOf(all), func(t *table) {
		t.row("PROMISE", "RESULT", "TOOK", "TEXT")
		for _, k := range all {
			text := k.Text
			if k.Error != "" {
				text += "; but: " + k.Error
			}
			t.row(k.Of+" "+k.Name, k.Result, fmt.Sprintf("%.1fs", time.Duration(k.Took).Seconds()), text)
		}
	})
	if err == nil && broken > 0 {
		err = &exitError{exitFailed, fmt.Errorf("promises that are not kept on this cluster: %d of %d", broken, len(all))}
	}
	return err
}
