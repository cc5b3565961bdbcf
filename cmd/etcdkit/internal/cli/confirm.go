package cli

import (
	"bufio"
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
func (a *app) confirm(question string) error {
	if a.yes {
		return nil
	}
	if !terminal(a.std.In) {
		return usageError{fmt.Errorf("%s: there is no terminal to confirm it; add --yes", question)}
	}
	fmt.Fprintf(a.std.Err, "%s? [y/N] ", question)
	line, err := bufio.NewReader(a.std.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return &exitError{exitFailed, errors.New("not confirmed; nothing was changed")}
	}
	return nil
}
