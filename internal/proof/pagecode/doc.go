// Package pagecode finds the code on a page: its blocks, and the commands that a reader types. It
// parses as much of Markdown and of a shell as the pages of this repository use.
package pagecode
