package permits

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
)

// clearExitFile empties the exit file, so that it is not that of an earlier run; or returns an error, before
// anything is acquired, if it cannot be written.
func (x *running) clearExitFile() error {
	if x.exitFile == "" {
		return nil
	}
	if err := writeAtOnce(x.exitFile, nil); err != nil {
		x.exitFile = ""
		return exit.Usagef("--exit-file cannot be written: %w", err)
	}
	return nil
}

// writeAtOnce replaces what a file has, as os.WriteFile, and waits for no reader of a FIFO: signals end nothing that
// waits so.
func writeAtOnce(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ENXIO) {
		return fmt.Errorf("no process reads the FIFO: %w", err)
	}
	if err != nil {
		return err
	}
	_ = f.SetWriteDeadline(time.Now().Add(output.LastMessages)) // a regular file has none
	_, err = f.Write(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// exitNote is what the exit file has.
type exitNote struct {
	output.Form
	Result  string `json:"result"` // "command", or why there is no exit code of the command
	Code    int    `json:"code"`
	EndedBy string `json:"ended_by,omitempty"` // why etcdkit has ended the command
	Reason  string `json:"reason,omitempty"`   // of EndedBy
}

// noteExit writes how the verb has ended into the exit file. An error of that is reported, and changes no exit code.
func (x *running) noteExit(err error) {
	if x.exitFile == "" {
		return
	}
	code := exit.CodeOf(err)
	note := exitNote{Form: output.FormOf("exit"), Result: "command", Code: code}
	if x.End != nil {
		note.EndedBy, note.Reason = x.End.By, x.End.Reason
	}
	var own *exit.Error
	var by exit.Interrupted
	switch {
	case err == nil, errors.As(err, &own) && own.Err == nil:
	case errors.As(err, &by):
		note.Result = "interrupted"
	default:
		note.Result = cmp.Or(results[code], "failed")
	}
	text, failed := json.Marshal(note)
	if failed == nil {
		failed = writeAtOnce(x.exitFile, append(text, '\n'))
	}
	if failed != nil {
		x.Say("--exit-file cannot be written: %v; the result is %q, with the exit code %d", failed, note.Result, note.Code)
	}
}

// results name the exit codes that are not the command's.
var results = map[int]string{
	exit.Usage: "usage", exit.Unreachable: "unreachable", exit.NotAcquired: "not-acquired", exit.Lost: "lost", exit.Denied: "denied",
	exit.NotRunnable: "not-executable", exit.NotFound: "not-found", exit.GuardKilled: "guard-killed",
}
