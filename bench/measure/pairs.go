package measure

import (
	"io"
	"slices"
)

// Pair is the results of two builds that were measured one right after the other.
type Pair struct{ Former, Latter *Results }

// Pairs writes, for each metric of each cell that both builds have, the median of each build, and the median of the
// ratios of the pairs, latter : former.
func Pairs(w io.Writer, pairs []Pair) error {
	rows := [][]string{{"cell", "metric", "former", "latter", "ratio", "spread"}}
	var cells []string
	for _, p := range pairs {
		for _, id := range p.Latter.Order {
			if !slices.Contains(cells, id) {
				cells = append(cells, id)
			}
		}
	}
	for _, id := range cells {
		for _, c := range columns {
			var former, latter, ratios []float64
			for _, p := range pairs {
				a, known := p.Former.Of(id, c.metric)
				b, known2 := p.Latter.Of(id, c.metric)
				if known && known2 && a > 0 && b > 0 {
					former, latter, ratios = append(former, a), append(latter, b), append(ratios, b/a)
				}
			}
			if len(ratios) > 0 {
				rows = append(rows, []string{id, string(c.metric), Figure(Median(former)), Figure(Median(latter)), Figure(Median(ratios)) + "×", spread(ratios)})
			}
		}
	}
	return aligned(w, rows)
}

// spread is the least and the greatest of some ratios; of one alone there is none.
func spread(ratios []float64) string {
	if len(ratios) < 2 {
		return ""
	}
	return Figure(Quantile(ratios, 0)) + " … " + Figure(Quantile(ratios, 1))
}
