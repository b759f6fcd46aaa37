package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A statement gets no more rows once it has so many, or so many bytes of texts and contents.
const (
	bulkRows  = 256
	bulkBytes = 1 << 20
)

// A rowStatement is a statement about rows of a table. It has a text for a single row, whose columns are the parameters, and one
// for many rows, whose parameters are arrays with an element for each row: the server begins and ends one statement for all.
type rowStatement struct{ single, many string }

// newRowStatement returns the statement about rows with columns such as "seq bigint, id text". In its text {rows} stands for the
// rows as the table u, and {among} for a condition that a value is in the first column. The elements of the arrays are taken by
// their numbers: unnest would store each array.
func newRowStatement(text, columns string) *rowStatement {
	var single, many []string
	numbers := ""
	for i, column := range strings.Split(columns, ", ") {
		name, kind, _ := strings.Cut(column, " ")
		single = append(single, fmt.Sprintf("$%d::%s AS %s", i+1, kind, name))
		many = append(many, fmt.Sprintf("($%d::%s[])[i] AS %s", i+1, kind, name))
		if i == 0 {
			numbers = " FROM generate_subscripts($1::" + kind + "[], 1) i"
		}
	}
	return &rowStatement{
		strings.NewReplacer("{rows}", "(SELECT "+strings.Join(single, ", ")+") u", "{among}", "= $1").Replace(text),
		strings.NewReplacer("{rows}", "(SELECT "+strings.Join(many, ", ")+numbers+") u", "{among}", "= ANY($1)").Replace(text),
	}
}

// indexesOnly sets up the connection that the statements for rows are sent by. The server may plan them while the tables are empty,
// and keep the plans, so it must not plan to read a whole table. A table that it can read in no other way, such as that of the
// fence, looks so dear then that it would compile the statement (jit_above_cost): it must not do that either.
const indexesOnly = "SELECT set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false)"

// namesOf returns the names of columns.
func namesOf(columns string) string {
	names := strings.Split(columns, ", ")
	for i, column := range names {
		names[i], _, _ = strings.Cut(column, " ")
	}
	return strings.Join(names, ", ")
}

// A bulk is a statement with its rows.
type bulk struct {
	of       *rowStatement
	columns  [][]any
	expected []*expected // rows whose numbers the statement returns, unless their changes are refused
	bytes    int
}

// add adds a row.
func (b *bulk) add(row []any) {
	for i, v := range row {
		b.columns[i] = append(b.columns[i], v)
		switch v := v.(type) {
		case string:
			b.bytes += len(v)
		case []byte:
			b.bytes += len(v)
		}
	}
}

// isLarge reports whether the statement should get no more rows.
func (b *bulk) isLarge() bool { return len(b.columns[0]) >= bulkRows || b.bytes >= bulkBytes }

// queue adds the statement to a batch.
func (b *bulk) queue(to *pgx.Batch) {
	text, params := b.of.many, make([]any, len(b.columns))
	for i, c := range b.columns {
		if params[i] = c; len(c) == 1 {
			text, params[i] = b.of.single, c[0]
		}
	}
	if queued := to.Queue(text, params...); b.expected != nil {
		queued.Query(b.refuseAbsent)
	}
}

// refuseAbsent refuses the changes whose rows are not among those that the statement returns.
func (b *bulk) refuseAbsent(rows pgx.Rows) error {
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for _, e := range b.expected {
		if e.absent = !slices.Contains(found, e.seq); e.absent {
			e.of.refused = e.refused
		}
	}
	return nil
}
