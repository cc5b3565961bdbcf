// Package mistakes holds what the product says to the most likely mistakes of a new user, each
// made against the real API, in testdata/mistakes.golden: a page to be read as a whole. It has
// only tests.
package mistakes
