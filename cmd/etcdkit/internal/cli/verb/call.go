package verb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Call is one call of the command, as its verb sees it. The flags of all verbs are parsed into it
// before the verb runs.
type Call struct {
	Std     Streams
	Etcd    Connection
	Output  string // the form of results: table or json
	Yes     bool   // no question is asked
	Uncatch func() // after it, no signal cancels the ctx of the verb; those that came before have

	messages *output.Messages // what Std.Err is after SurviveReader; nil before
}

// Print writes a result: as JSON in one line, or as what table writes. It returns an error if not all of it
// could be written.
func (c *Call) Print(value any, table func(t *output.Table)) error {
	return c.PrintTo(c.Std.Out, value, table)
}

// PrintTo is Print to another writer. It returns an error of that.
func (c *Call) PrintTo(to io.Writer, value any, table func(t *output.Table)) error {
	if c.Output == "json" {
		return output.JSON(to, value)
	}
	t := output.NewTable(to)
	table(t)
	return t.Flush()
}

// PrintChange is Print after something was changed. It returns an error that says so.
func (c *Call) PrintChange(value any, table func(t *output.Table)) error {
	if err := c.Print(value, table); err != nil {
		return fmt.Errorf("the change was made, but its result cannot be written: %w", err)
	}
	return nil
}

// SurviveReader has a verb outlive the reader of its messages, and not wait for it: what the verb holds or serves is
// worth more than they are. Without it, a write to a pipe that was closed ends the process. A command that the
// verb starts is not affected.
func (c *Call) SurviveReader() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	c.messages = output.NewMessages(c.Std.Err)
	c.Std.Err = c.messages
}

// Close waits for the messages that are still to be written, for a second at most.
func (c *Call) Close() { c.messages.Close() }

// Asks reports whether Confirm asks: there is a terminal, and no --yes.
func (c *Call) Asks() bool { return !c.Yes && output.Terminal(c.Std.In) }

// Confirm asks before something is ended or deleted. Without a terminal it needs --yes. It returns an error if the
// answer is no, or there is none.
func (c *Call) Confirm(ctx context.Context, question string) error {
	if c.Yes {
		return nil
	}
	if !output.Terminal(c.Std.In) {
		return exit.Usagef("%s: there is no terminal to confirm it; add --yes", question)
	}
	fmt.Fprintf(c.Std.Err, "%s? [y/N] ", output.Printable(question)) // one line, with any owner
	line, err := typed(ctx, int(c.Std.In.(*os.File).Fd()), func() (string, error) {
		return bufio.NewReader(c.Std.In).ReadString('\n')
	})
	if ctx.Err() != nil {
		fmt.Fprintln(c.Std.Err)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return exit.Errorf(exit.Failed, "not confirmed; nothing was changed")
	}
	return nil
}

// typed returns what read returns from a terminal, or ctx's error if that ends first: the read itself notices no
// signal. The terminal is as before then.
func typed(ctx context.Context, terminal int, read func() (string, error)) (string, error) {
	before, unknown := term.GetState(terminal)
	text, err := until(ctx, read)
	if ctx.Err() != nil && unknown == nil {
		_ = term.Restore(terminal, before)
	}
	return text, err
}

// Pause waits. It returns an error, that of ctx, only if ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
