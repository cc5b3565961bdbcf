package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// schemas are the members of the forms of JSON that transcripts show, by the names of the forms.
type schemas map[string]*members

// members are the members of an object, in the order in which they were first seen.
type members struct {
	schema string // "" of an object without a name
	names  []string
	of     map[string]*member
}

// member is what is known of one member.
type member struct {
	kind   string
	list   bool
	object *members // or nil
}

// schemasIn reads the JSON of transcripts.
func schemasIn(transcripts map[string]string) schemas {
	all := schemas{}
	for _, name := range slices.Sorted(maps.Keys(transcripts)) {
		for line := range strings.Lines(transcripts[name]) {
			if strings.HasPrefix(line, `{"schema":`) {
				all.read(json.NewDecoder(strings.NewReader(line)), &member{})
			}
		}
	}
	return all
}

// read reads one value. What is not JSON has ended before.
func (s schemas) read(from *json.Decoder, m *member) {
	token, _ := from.Token()
	switch t := token.(type) {
	case bool:
		m.kind = "true or false"
	case float64:
		m.kind = "number"
	case string:
		if _, err := time.Parse(time.RFC3339, t); err == nil {
			m.kind = "time"
		}
	case json.Delim:
		if m.list = t == '['; m.list {
			for from.More() {
				s.read(from, m)
				m.list = true
			}
		} else {
			s.object(from, m)
		}
		_, _ = from.Token() // the end of it
	}
}

// object reads the members of an object. The first one of a form is its name.
func (s schemas) object(from *json.Decoder, m *member) {
	if m.object == nil {
		m.object = &members{of: map[string]*member{}}
	}
	for from.More() {
		name, _ := from.Token()
		key, _ := name.(string)
		if key == "schema" {
			value, _ := from.Token()
			m.object = s.named(value.(string))
			continue
		}
		if m.object.of[key] == nil {
			m.object.of[key] = &member{}
			m.object.names = append(m.object.names, key)
		}
		s.read(from, m.object.of[key])
	}
}

func (s schemas) named(schema string) *members {
	if s[schema] == nil {
		s[schema] = &members{schema: schema, of: map[string]*member{}}
	}
	return s[schema]
}

// String describes the members.
func (m *members) String() string {
	texts := make([]string, len(m.names))
	for i, name := range m.names {
		texts[i] = "`" + name + "`"
		if of := m.of[name].String(); of != "" {
			texts[i] += " " + of
		}
	}
	return strings.Join(texts, ", ")
}

// String describes a value; "" is a text.
func (m *member) String() string {
	text := m.kind
	switch {
	case m.object != nil && m.object.schema != "":
		text = "`" + m.object.schema + "`"
	case m.object != nil:
		text = fmt.Sprintf("{%v}", m.object)
	}
	if m.list {
		text = strings.TrimSpace("list of " + text)
		text = strings.TrimSuffix(text, " of")
	}
	return text
}
