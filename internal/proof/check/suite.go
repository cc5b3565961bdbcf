package check

import (
	"fmt"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// suites are the checkers of each kind of run, by the name that the run sets in
// SettingSuite.
var suites = map[string][]Checker{
	"concurrency": {Store{}, Belief{}, Fence{}, Linear{}, Live{}, Jobs{}, Requests{}, Rates{}},
}

// Suite returns the checkers that a history asks for. It returns an error if it
// asks for a suite that does not exist.
func Suite(h *history.History) ([]Checker, error) {
	name := h.Setting(SettingSuite)
	if name == "" {
		name = "concurrency"
	}
	checkers, ok := suites[name]
	if !ok {
		return nil, fmt.Errorf("there is no suite %q", name)
	}
	return checkers, nil
}
