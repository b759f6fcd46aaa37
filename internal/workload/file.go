package workload

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// maxLine is the greatest length of a line, in bytes.
const maxLine = 1 << 20

// csvSource reads CSV (RFC 4180). The first line names the columns.
type csvSource struct {
	*counter
	r       *csv.Reader
	limits  limitNames
	columns *columns
	at      int
	id      []byte
}

func newCSV(c *counter, limits limitNames) *csvSource {
	r := csv.NewReader(bufio.NewReaderSize(c, 64<<10))
	r.ReuseRecord = true
	return &csvSource{counter: c, r: r, limits: limits}
}

func (s *csvSource) next(r *row) error {
	if s.columns == nil {
		if err := s.header(r); err != nil {
			return err
		}
	}
	cells, err := s.r.Read()
	if err != nil {
		return csvFault(err, r)
	}
	r.line, _ = s.r.FieldPos(0)
	r.columns, r.values, s.id = s.columns, r.values[:0], s.id[:0]
	for i, cell := range cells {
		if i == s.at {
			r.values = append(r.values, value{text: cell})
			continue
		}
		s.id = append(append(s.id, cell...), 0)
		r.values = append(r.values, value{text: cell, json: jsonOf(cell), null: cell == ""})
	}
	r.id = s.id
	return r.setAt(cells[s.at])
}

// header reads the names of the columns.
func (s *csvSource) header(r *row) error {
	r.line = 1
	names, err := s.r.Read()
	if err != nil {
		return csvFault(err, r)
	}
	names[0] = strings.TrimPrefix(names[0], "\ufeff") // spreadsheets write a byte order mark
	if s.columns, err = newColumns(slices.Clone(names), s.limits); err != nil {
		return err
	}
	s.at = s.columns.index["at"]
	return nil
}

// csvFault returns an error without its line, and sets the row's line.
func csvFault(err error, r *row) error {
	var at *csv.ParseError
	if errors.As(err, &at) {
		r.line, err = at.Line, at.Err
		if err == csv.ErrFieldCount {
			err = errors.New("has not as many fields as the first line has columns")
		}
	}
	return err
}

// jsonOf returns a cell as JSON: numbers, true and false as such, others as texts.
func jsonOf(cell string) string {
	if cell != "" && (cell[0] == '-' || cell[0] >= '0' && cell[0] <= '9' || cell == "true" || cell == "false") && gjson.Valid(cell) {
		return cell
	}
	return string(gjson.AppendJSONString(nil, cell))
}

// jsonlSource reads a JSON object from each line.
type jsonlSource struct {
	*counter
	scan    *bufio.Scanner
	line    int
	limits  limitNames
	columns *columns // of the last line; mostly the next line has the same
	names   []string
	id      []byte
}

func newJSONL(c *counter, limits limitNames) *jsonlSource {
	scan := bufio.NewScanner(c)
	scan.Buffer(make([]byte, 64<<10), maxLine)
	return &jsonlSource{counter: c, scan: scan, limits: limits}
}

func (s *jsonlSource) next(r *row) error {
	for s.scan.Scan() {
		s.line++
		r.line = s.line
		if line := bytes.TrimSpace(s.scan.Bytes()); len(line) > 0 {
			return s.parse(r, string(line))
		}
	}
	switch err := s.scan.Err(); err {
	case nil:
		return io.EOF
	case bufio.ErrTooLong:
		r.line = s.line + 1
		return fmt.Errorf("is longer than %d bytes", maxLine)
	default:
		return err
	}
}

func (s *jsonlSource) parse(r *row, line string) error {
	if !gjson.Valid(line) || line[0] != '{' {
		return errors.New("is not a JSON object")
	}
	var fault error
	at := ""
	s.names, s.id, r.values = s.names[:0], s.id[:0], r.values[:0]
	gjson.Parse(line).ForEach(func(name, v gjson.Result) bool {
		if v.IsObject() || v.IsArray() {
			if !strings.HasPrefix(name.Str, "json.") {
				fault = fmt.Errorf("%s is an object or a list, must be a text or a number", name.Str)
				return false
			}
		}
		s.names = append(s.names, name.Str)
		r.values = append(r.values, value{text: v.String(), json: v.Raw, null: v.Type == gjson.Null})
		if name.Str == "at" {
			at = v.String()
			return true
		}
		s.id = append(append(append(append(s.id, name.Str...), 0), v.Raw...), 0)
		return true
	})
	if fault != nil {
		return fault
	}
	if s.columns == nil || !slices.Equal(s.columns.names, s.names) {
		var err error
		if s.columns, err = newColumns(slices.Clone(s.names), s.limits); err != nil {
			s.columns = nil
			return err
		}
	}
	r.columns, r.id = s.columns, s.id
	return r.setAt(at)
}
