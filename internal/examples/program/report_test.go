package program_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// The first violations are printed, and what was kept only if there are none.
func TestWriteVerdict(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		violations, remarks []string
		want                string
	}{
		"kept":   {want: "\nelapsed 1.5 s\nAll was kept.\n"},
		"broken": {violations: []string{"a"}, want: "\nelapsed 1.5 s\n  a\nFAILED.\n"},
		"many":   {violations: []string{"a", "b", "c", "d", "e", "f", "g"}, remarks: []string{"busy"}, want: "\nelapsed 1.5 s\n  a\n  b\n  c\n  d\n  e\n  and 2 more\n  busy\nFAILED.\n"},
	} {
		var out bytes.Buffer
		program.WriteVerdict(&out, 1.5, tt.violations, "All was kept.", tt.remarks...)
		if out.String() != tt.want {
			t.Errorf("%s: %q, want %q", name, &out, tt.want)
		}
	}
}

// All calls run at the same time, and an error of one is not that of another.
func TestEach(t *testing.T) {
	t.Parallel()
	meet := make(chan int)
	second := errors.New("second")
	err := program.Each(2, func(i int) error {
		if i == 0 {
			meet <- i
			return nil
		}
		<-meet
		return second
	})
	if !errors.Is(err, second) || err.Error() != "second" {
		t.Error(err)
	}
	if err := program.Each(0, nil); err != nil {
		t.Error(err)
	}
}
