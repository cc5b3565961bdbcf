package embedtest

import (
	"bytes"
	"os"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logKeep is how many bytes of a log are kept and shown: etcd logs a lot, and the newest
// entries explain a failure.
const logKeep = 16 << 10

// logBuffer keeps the newest part of a log. It is logged to the test only after the servers
// have stopped: the testing package panics if a goroutine logs after the end of its test.
type logBuffer struct {
	mu      sync.Mutex
	buf     []byte
	dropped bool
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	if len(b.buf) > 2*logKeep {
		b.buf = append(b.buf[:0], b.buf[len(b.buf)-logKeep:]...)
		b.dropped = true
	}
	return len(p), nil
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	tail := b.buf
	if len(tail) > logKeep {
		tail = tail[len(tail)-logKeep:]
	} else if !b.dropped {
		return string(tail)
	}
	if i := bytes.IndexByte(tail, '\n'); i >= 0 {
		tail = tail[i+1:]
	}
	return "(older lines omitted; EMBEDTEST_LOG=1 logs all to standard error)\n" + string(tail)
}

// newLogger returns the logger of one cluster, and its buffer, or nil if it logs elsewhere.
func newLogger(given *zap.Logger) (*zap.Logger, *logBuffer) {
	if given != nil {
		return given, nil
	}
	buf := &logBuffer{}
	var sink zapcore.WriteSyncer = zapcore.AddSync(buf)
	level := zapcore.InfoLevel
	if os.Getenv("EMBEDTEST_LOG") != "" {
		buf, sink = nil, zapcore.Lock(os.Stderr)
	}
	enc := zap.NewDevelopmentEncoderConfig()
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(enc), sink, level)
	return zap.New(core), buf
}
