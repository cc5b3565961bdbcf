package cli

import "github.com/etcdkit/etcdkit/internal/proof/pagecode"

// What tests of the whole command reach: the tree of its verbs.
var (
	Tree    = tree
	VerbsOf = verbsOf
)

// Whole reports whether a call has the arguments that its verb needs.
func Whole(words []string) bool { return parses(pagecode.Call{Words: words}) == nil }
