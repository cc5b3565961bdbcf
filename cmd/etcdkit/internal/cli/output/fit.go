package output

import (
	"fmt"
	"strings"
)

// Fit returns the part of a table for which a terminal has room beside the line of the cursor: otherwise its first rows
// would scroll away. A size of 0 is not known.
func Fit(table []byte, width, height int) []byte {
	lines := strings.SplitAfter(string(table), "\n")
	lines = lines[:len(lines)-1] // what follows the last line end
	if height > 1 && len(lines) >= height {
		hidden := len(lines) - (height - 2)
		lines = append(lines[:height-2], fmt.Sprintf("and %s; a larger terminal has room for them\n",
			Count(hidden, "line more", "lines more")))
	}
	for i, line := range lines {
		if r := []rune(line); width > 0 && len(r) > width+1 {
			lines[i] = string(r[:width]) + "\n"
		}
	}
	return []byte(strings.Join(lines, ""))
}
