package crontab

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// field is one of the five fields of a line.
type field struct {
	name      string
	low, high int
	names     []string // of low and the numbers after it, or nil
}

var (
	minutes  = field{"minute", 0, 59, nil}
	hours    = field{"hour", 0, 23, nil}
	days     = field{"day of the month", 1, 31, nil}
	months   = field{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}}
	weekdays = field{"weekday", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun"}}
)

// set are the numbers of a field, as bits.
type set uint64

func (s set) has(n int) bool { return s&(1<<n) != 0 }

// none is what from returns if there is no such number.
const none = 64

// from returns the first number of the set that is n or more.
func (s set) from(n int) int { return bits.TrailingZeros64(uint64(s &^ (1<<n - 1))) }

// parse reads a field: a list of numbers, ranges, and ranges or * with a step.
func (f field) parse(text string) (all set, err error) {
	for part := range strings.SplitSeq(text, ",") {
		one, err := f.parsePart(part)
		if err != nil {
			return 0, fmt.Errorf("%s %q: %w", f.name, text, err)
		}
		all |= one
	}
	return all, nil
}

// parsePart reads a number, a range, or a range or * with a step.
func (f field) parsePart(text string) (all set, err error) {
	span, stepText, stepped := strings.Cut(text, "/")
	from, to, ranged := strings.Cut(span, "-")
	low, high := f.low, f.high
	switch {
	case span == "*":
	case strings.Contains(span, "~"):
		return 0, fmt.Errorf("%q is a random time, which each process would choose for itself: write a number", text)
	case strings.ContainsAny(span, "?LW#H"):
		return 0, fmt.Errorf("%q is of another scheduler; a field has numbers, names, ranges such as 1-5, steps such as */15 and lists of these", text)
	case stepped && !ranged:
		return 0, fmt.Errorf("a step follows * or a range, as in %s-%d/%s", span, f.high, stepText)
	default:
		if low, err = f.number(from); err != nil {
			return 0, err
		}
		if high = low; ranged {
			if high, err = f.number(to); err != nil {
				return 0, err
			}
		}
	}
	if low > high {
		return 0, fmt.Errorf("the range %q ends before it begins; write two: %d-%d,%d-%d", text, low, f.high, f.low, high)
	}
	step := 1
	if stepped {
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
			return 0, fmt.Errorf("the step %q is not a number above 0", stepText)
		}
		if step > high-low {
			return 0, fmt.Errorf("the step %d is longer than the range %d-%d, so that %q is %d alone: write that", step, low, high, text, low)
		}
	}
	for n := low; n <= high; n += step {
		all |= 1 << n
	}
	return all, nil
}

// number reads a number or a name.
func (f field) number(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.low + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || strings.HasPrefix(text, "+") {
		return 0, fmt.Errorf("%q is no number", text)
	}
	if n < f.low || n > f.high {
		return 0, fmt.Errorf("%d is not between %d and %d", n, f.low, f.high)
	}
	return n, nil
}
