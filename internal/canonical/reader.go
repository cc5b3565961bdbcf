package canonical

import "slices"

// reader reads a JSON text and writes its canonical form at the same time. value and the other
// methods that read take the position of a token and return the position after it; their error is
// errSyntax, or the reason why the text cannot be compared.
type reader struct {
	b []byte
	writer
}

// maxNesting is how deep encoding/json lets arrays and objects be nested.
const maxNesting = 10_000

// space returns the position of the next token.
func (r *reader) space(i int) int {
	for i < len(r.b) && (r.b[i] == ' ' || r.b[i] == '\n' || r.b[i] == '\t' || r.b[i] == '\r') {
		i++
	}
	return i
}

// at returns the byte at i, and 0 behind the end.
func (r *reader) at(i int) byte {
	if i < len(r.b) {
		return r.b[i]
	}
	return 0
}

func (r *reader) value(i, depth int) (end int, err error) {
	switch c := r.at(i); {
	case c == '{':
		return r.object(i, depth+1)
	case c == '[':
		return r.array(i, depth+1)
	case c == '"':
		return r.string(i)
	case c == '-' || c >= '0' && c <= '9':
		return r.number(i)
	case c == 't':
		return r.word(i, "true")
	case c == 'f':
		return r.word(i, "false")
	case c == 'n':
		return r.word(i, "null")
	}
	return 0, errSyntax
}

func (r *reader) word(i int, word string) (end int, err error) {
	end = i + len(word)
	if end > len(r.b) || string(r.b[i:end]) != word {
		return 0, errSyntax
	}
	r.out = append(r.out, word...)
	return end, nil
}

// number reads a number, which counts as it is written.
func (r *reader) number(i int) (end int, err error) {
	start := i
	if r.b[i] == '-' {
		i++
	}
	if r.at(i) == '0' {
		i++
	} else if i, err = r.digits(i); err != nil {
		return 0, err
	}
	if r.at(i) == '.' {
		if i, err = r.digits(i + 1); err != nil {
			return 0, err
		}
	}
	if c := r.at(i); c == 'e' || c == 'E' {
		if c := r.at(i + 1); c == '+' || c == '-' {
			i++
		}
		if i, err = r.digits(i + 1); err != nil {
			return 0, err
		}
	}
	if i == start+1 { // by far the most frequent
		r.out = append(r.out, r.b[start])
		return i, nil
	}
	from := len(r.out)
	r.out = append(r.out, r.b[start:i]...)
	r.shorten(from)
	return i, nil
}

// digits reads one digit or more.
func (r *reader) digits(i int) (end int, err error) {
	start := i
	for i < len(r.b) && r.b[i] >= '0' && r.b[i] <= '9' {
		i++
	}
	if i == start {
		return 0, errSyntax
	}
	return i, nil
}

func (r *reader) array(i, depth int) (end int, err error) {
	if depth > maxNesting {
		return 0, errSyntax
	}
	from := len(r.out)
	r.out = append(r.out, '[')
	if i = r.space(i + 1); r.at(i) != ']' {
		for {
			if i, err = r.value(i, depth); err != nil {
				return 0, err
			}
			if i = r.space(i); r.at(i) != ',' {
				break
			}
			r.out = append(r.out, ',')
			r.cut(from)
			i = r.space(i + 1)
		}
	}
	if r.at(i) != ']' {
		return 0, errSyntax
	}
	r.out = append(r.out, ']')
	r.shorten(from)
	return i + 1, nil
}

func (r *reader) object(i, depth int) (end int, err error) {
	if depth > maxNesting {
		return 0, errSyntax
	}
	from, first := len(r.out), len(r.members)
	r.out = append(r.out, '{')
	if i = r.space(i + 1); r.at(i) != '}' {
		for {
			if i, err = r.member(i, depth); err != nil {
				return 0, err
			}
			if i = r.space(i); r.at(i) != ',' {
				break
			}
			i = r.space(i + 1)
		}
	}
	if r.at(i) != '}' {
		return 0, errSyntax
	}
	if err := r.sort(first); err != nil {
		return 0, err
	}
	r.members = r.members[:first]
	r.out = append(r.out, '}')
	r.shorten(from)
	return i + 1, nil
}

func (r *reader) member(i, depth int) (end int, err error) {
	if r.at(i) != '"' {
		return 0, errSyntax
	}
	m := member{from: int32(len(r.out))}
	if i, err = r.text(i); err != nil {
		return 0, err
	}
	m.value = int32(len(r.out))
	m.front = front(r.name(m))
	if i = r.space(i); r.at(i) != ':' {
		return 0, errSyntax
	}
	if i, err = r.value(r.space(i+1), depth); err != nil {
		return 0, err
	}
	m.end = int32(len(r.out))
	r.members = append(r.members, m)
	return i, nil
}

// sort puts the members from first on in the order of their names. It returns an error if two have
// one name.
func (r *reader) sort(first int) error {
	members := r.members[first:]
	sorted := true
	for n := 1; n < len(members) && sorted; n++ {
		sorted = r.order(members[n-1], members[n]) < 0
	}
	if sorted {
		return nil
	}
	from := members[0].from
	slices.SortFunc(members, r.order)
	r.spare = r.spare[:0]
	for n, m := range members {
		if n > 0 && r.order(members[n-1], m) == 0 {
			return duplicateError(r.name(m))
		}
		r.spare = append(r.spare, r.out[m.from:m.end]...)
	}
	copy(r.out[from:], r.spare)
	return nil
}
