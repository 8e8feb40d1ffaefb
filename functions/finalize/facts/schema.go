package facts

import (
	"github.com/parquet-go/parquet-go"

	"rollout/shared/kind"
)

// The columns that the facts of every run begin with, in their order. A run with graders has
// a column score, and one for each grader, behind them. The columns of its kind are last.
const (
	columnItem = iota
	columnID
	columnStatus
	columnClass
	columnError
	columnFinishReason
	columnPrompt
	columnCompletion
	columnCompletions
	columnPromptTokens
	columnCompletionTokens
	columnsOfAll // their number
)

// schema is the schema of a run's facts. Every column but item and status may be null.
type schema struct {
	*parquet.Schema
	graders []string
	own     []kind.Column
	texts   []string // columns of texts of any length
}

// newSchema returns the schema of a run with those graders, whose kind has those columns.
func newSchema(graders []string, own []kind.Column) schema {
	s := schema{graders: graders, own: own}
	g := group{Group: parquet.Group{}}
	word := parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	g.add("item", parquet.Uint(64))
	g.add("id", parquet.Optional(parquet.String()))
	g.add("status", word)
	g.add("class", parquet.Optional(word))
	g.add("error", parquet.Optional(parquet.String()))
	g.add("finish_reason", parquet.Optional(word))
	g.add("prompt", parquet.Optional(parquet.String()))
	g.add("completion", parquet.Optional(parquet.String()))
	g.add("completions", parquet.Optional(parquet.JSON()))
	g.add("prompt_tokens", parquet.Optional(parquet.Int(64)))
	g.add("completion_tokens", parquet.Optional(parquet.Int(64)))
	s.texts = []string{"id", "error", "prompt", "completion", "completions"}
	if len(graders) > 0 {
		g.add("score", parquet.Optional(parquet.Leaf(parquet.DoubleType)))
	}
	for _, name := range graders {
		g.add("score_"+name, parquet.Optional(parquet.Leaf(parquet.DoubleType)))
	}
	for _, c := range own {
		node := parquet.String()
		if c.Integer {
			node = parquet.Int(64)
		} else {
			s.texts = append(s.texts, c.Name)
		}
		g.add(c.Name, parquet.Optional(node))
	}
	g.order()
	s.Schema = parquet.NewSchema("facts", g)
	return s
}

// group is a Parquet group whose fields keep their order; the library's own sorts them.
type group struct {
	parquet.Group
	names  []string
	fields []parquet.Field
}

// Fields implements parquet.Node.
func (g group) Fields() []parquet.Field { return g.fields }

func (g *group) add(name string, n parquet.Node) {
	g.Group[name] = n
	g.names = append(g.names, name)
}

// order makes the fields of the nodes that were added, in that order.
func (g *group) order() {
	byName := map[string]parquet.Field{}
	for _, f := range g.Group.Fields() {
		byName[f.Name()] = f
	}
	for _, name := range g.names {
		g.fields = append(g.fields, byName[name])
	}
}
