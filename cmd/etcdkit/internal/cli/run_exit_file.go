package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// clearExitFile empties the exit file, so that it is not that of an earlier run; or returns an error, before
// anything is acquired, if it cannot be written.
func (x *execution) clearExitFile() error {
	if x.exitFile == "" {
		return nil
	}
	if err := writeAtOnce(x.exitFile, nil); err != nil {
		x.exitFile = ""
		return usageError{fmt.Errorf("--exit-file cannot be written: %w", err)}
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
	_ = f.SetWriteDeadline(time.Now().Add(lastMessages)) // a regular file has none
	_, err = f.Write(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// exitNote is what the exit file has.
type exitNote struct {
	schema
	Result  string `json:"result"` // "command", or why there is no exit code of the command
	Code    int    `json:"code"`
	EndedBy string `json:"ended_by,omitempty"` // why etcdkit has ended the command
	Reason  string `json:"reason,omitempty"`   // of EndedBy
}

// noteExit writes how the verb has ended into the exit file. An error of that is reported, and changes no exit code.
func (a *app) noteExit(x execution, err error) {
	if x.exitFile == "" {
		return
	}
	code, _ := explain(err)
	note := exitNote{schema: schemaOf("exit"), Result: "command", Code: code}
	if x.end != nil {
		note.EndedBy, note.Reason = x.end.by, x.end.reason
	}
	var own *exitError
	var by interrupted
	switch {
	case err == nil, errors.As(err, &own) && own.err == nil:
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
		a.say("--exit-file cannot be written: %v; the result is %q, with the exit code %d", failed, note.Result, note.Code)
	}
}

// results name the exit codes that are not the command's.
var results = map[int]string{
	exitUsage: "usage", exitUnreachable: "unreachable", exitNotAcquired: "not-acquired", exitLost: "lost", exitDenied: "denied",
	exitNotRunnable: "not-executable", exitNotFound: "not-found", 128 + 9: "guard-killed",
}
