package kind

import "rollout/shared/record"

// Facts are the columns that the facts of a kind's items have beyond those of every run.
type Facts struct {
	Columns []Column
	// ValuesOf returns the values of an item, in the order of the columns, from its line. It
	// depends on its arguments alone.
	ValuesOf func(m record.Manifest, line []byte) ([]Value, error)
}

// Column is a column of texts, or of integers.
type Column struct {
	Name    string // Example: "ticket"
	Integer bool
}

// Value is a value of a column, of the column's type. The zero value is null.
type Value struct {
	Text    *string
	Integer *int64
}
