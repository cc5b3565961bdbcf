package cli

// What tests of the whole command reach: the tree of its verbs.
var (
	Tree    = tree
	VerbsOf = verbsOf
)
