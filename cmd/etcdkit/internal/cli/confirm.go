package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirm asks before something is ended or deleted. Without a terminal it needs --yes.
func (a *app) confirm(ctx context.Context, question string) error {
	if a.yes {
		return nil
	}
	if !terminal(a.std.In) {
		return usageError{fmt.Errorf("%s: there is no terminal to confirm it; add --yes", question)}
	}
	fmt.Fprintf(a.std.Err, "%s? [y/N] ", question)
	line, err := typed(ctx, int(a.std.In.(*os.File).Fd()), func() (string, error) { return bufio.NewReader(a.std.In).ReadString('\n') })
	if ctx.Err() != nil {
		fmt.Fprintln(a.std.Err)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return &exitError{exitFailed, errors.New("not confirmed; nothing was changed")}
	}
	return nil
}

// typed returns what read returns from a terminal, or ctx's error if that ends first: the read itself notices no
// signal. The terminal is as before then.
func typed(ctx context.Context, terminal int, read func() (string, error)) (string, error) {
	before, unknown := term.GetState(terminal)
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	go func() { text, err := read(); got <- answer{text, err} }()
	select {
	case a := <-got:
		return a.text, a.err
	case <-ctx.Done():
		if unknown == nil {
			_ = term.Restore(terminal, before)
		}
		return "", ctx.Err()
	}
}
