package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// shell runs a script that names no interpreter.
const shell = "/bin/sh"

// execute starts a program as execvp(3) does: a text without a #! line is run by /bin/sh.
func execute(path string, c Command) (pid int, err error) {
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	pid, err = syscall.ForkExec(path, c.Args, attr)
	if !errors.Is(err, syscall.ENOEXEC) || !isText(beginning(path, c.Dir)) {
		return pid, err
	}
	if !strings.Contains(path, "/") {
		path = "./" + path // the shell would look for it in PATH
	}
	return syscall.ForkExec(shell, append([]string{shell, path}, c.Args[1:]...), attr)
}

// explained adds to an error of an execution what the file is that exists and cannot be executed.
func explained(path, dir string, err error) error {
	begin := beginning(path, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && interpreter(begin) != "":
		return fmt.Errorf("its interpreter %s does not exist: %w", interpreter(begin), err)
	case errors.Is(err, fs.ErrNotExist) && bytes.HasPrefix(begin, []byte("\x7fELF")):
		return fmt.Errorf("the loader that it names does not exist, as of a program for another C library: %w", err)
	}
	return err
}

// beginning returns the first bytes of a file, as many as the kernel looks at; none if it cannot be read.
func beginning(path, dir string) []byte {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	begin := make([]byte, 256)
	n, _ := io.ReadFull(f, begin)
	return begin[:n]
}

// interpreter returns the program that the #! line of a script names, or "".
func interpreter(begin []byte) string {
	line, script := bytes.CutPrefix(begin, []byte("#!"))
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(string(line))
	if !script || len(words) == 0 {
		return ""
	}
	return words[0]
}

// isText reports whether a file that begins so may be a script: its first line has no zero byte.
func isText(begin []byte) bool {
	line, _, _ := bytes.Cut(begin, []byte("\n"))
	return bytes.IndexByte(line, 0) < 0
}
