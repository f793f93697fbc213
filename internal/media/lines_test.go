package media_test

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"flowlane/internal/media"
)

// TestAppendRow: what is written is read by others as it was, in the order of the columns.
func TestAppendRow(t *testing.T) {
	t.Parallel()
	columns := []string{"Id", "Name", "N"}
	out := media.AppendCells(nil, columns)
	var err error
	for _, record := range []string{
		`{"N":1.50,"Id":"a,b","Name":"say \"hi\""}`, `{"Id":"two\nlines\r","Name":null}`, `{}`,
		`{"Id":" x ","Name":"=1+1","N":true}`, `{"Id":"ž\u0000"}`,
	} {
		out, err = media.AppendRow(out, columns, "#N/A", gjson.Parse(record))
		require.NoError(t, err)
	}
	read, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	require.NoError(t, err)
	assert.Equal(t, [][]string{columns, {"a,b", `say "hi"`, "1.50"}, {"two\nlines\r", "#N/A", ""}, {"", "", ""},
		{" x ", "=1+1", "true"}, {"ž\x00", "", ""}}, read)
	assert.Equal(t, "\"\"\n", string(media.AppendCells(nil, []string{""})), "an empty line would be passed over")
	for _, bad := range []string{`{"Other":1}`, `{"Id":{}}`, `{"Id":[1]}`, `[1]`, `"x"`, `{"":1}`} {
		_, err := media.AppendRow(nil, columns, "", gjson.Parse(bad))
		require.ErrorIs(t, err, media.ErrNoCSV, bad)
	}
}

// TestColumns: a table has the fields of all its records, in the order in which they come, and no more than there may
// be.
func TestColumns(t *testing.T) {
	t.Parallel()
	columns, ok := media.Columns(nil, gjson.Parse(`{"Id":1,"Name":2}`))
	columns, more := media.Columns(columns, gjson.Parse(`{"Email":null,"Id":3}`))
	assert.True(t, ok && more)
	assert.Equal(t, []string{"Id", "Name", "Email"}, columns)
	var wide strings.Builder
	for i := range media.MostColumns - 2 {
		fmt.Fprintf(&wide, `,"f%d":1`, i)
	}
	same, more := media.Columns(columns, gjson.Parse("{"+wide.String()[1:]+"}"))
	assert.False(t, more)
	assert.Equal(t, columns, same)
	columns, more = media.Columns(nil, gjson.Parse(`{"a":1,"b":1`+wide.String()+"}"))
	assert.True(t, more)
	assert.Len(t, columns, media.MostColumns)
}

func TestLines_Read(t *testing.T) {
	t.Parallel()
	bounds := media.Bounds{Depth: 3, Parts: 6}
	for body, want := range map[string]string{
		"\ufeffrow,error\r\n3,\"a \"\"b\"\", c\"\r\n4,\r\n": `[{"row":"3","error":"a \"b\", c"},{"row":"4","error":""}]`,
		"row\n": `[]`, "": "", "a,a\n1,2\n": "", "a,\n1,2\n": "", "a,b\n1\n": "", "a,b\n\"1\n": "",
		"a\n1\n2\n3\n4\n5\n6\n7\n": "", "a\n\xff\n": "",
	} {
		got, ok := media.CSV([]byte(body), bounds)
		assert.Equal(t, want, string(got), "%q", body)
		assert.Equal(t, want != "", ok, "%q", body)
	}
	long := strings.Repeat("n", 20)
	_, ok := media.CSV([]byte(long+"\n1\n2\n"), media.Bounds{Parts: 6, Size: 30})
	assert.True(t, ok)
	_, ok = media.CSV([]byte(long+"\n1\n2\n3\n"), media.Bounds{Parts: 6, Size: 30})
	assert.False(t, ok, "each line repeats the name")
	for body, want := range map[string]string{
		"{\"a\":1}\n\n [2] \r\n\"x\"": `[{"a":1},[2],"x"]`, "": `[]`, "{\"a\":\n1}": "", "{}\n{": "", "[[[[1]]]]": "",
		strings.Repeat("1\n", 7): "",
	} {
		got, ok := media.JSONLines([]byte(body), bounds)
		assert.Equal(t, want, string(got), "%q", body)
		assert.Equal(t, want != "", ok, "%q", body)
	}
	assert.Equal(t, "{\"a\":\"x\"}\n{\"b\":\"\\n\"}\n",
		string(media.AppendLine(media.AppendLine(nil, gjson.Parse("{\"a\":\n \"x\"}")), gjson.Parse(`{"b":"\n"}`))))
}
