package dispatch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/definition"
	"flowlane/internal/platform/catalog"
)

// TestInTable: a table is as wide as all its records, so that records of many different fields share few calls.
func TestInTable(t *testing.T) {
	t.Parallel()
	r := &renderer{task: &definition.Task{Action: &catalog.Action{Call: &catalog.Call{BodyForm: catalog.BodyCSV,
		Records: &catalog.Records{}}}}}
	fits := func(row func(i int) string) (rows int) {
		c := &bulk{}
		for i := range 5000 {
			c.buf = []byte(row(i))
			if !c.inTable(r, 0) {
				break
			}
			c.records++
		}
		return c.records
	}
	long := strings.Repeat("n", 94)
	assert.Equal(t, 5000, fits(func(i int) string { return fmt.Sprintf(`{"%s%d":1}`, long, i%4) }))
	assert.Equal(t, 323, fits(func(i int) string { return fmt.Sprintf(`{"%s%d":1}`, long[:91], 100+i%400) }),
		"as many, each of 100 bytes, as the square root of 10 MiB by 100")
	assert.Equal(t, 500, fits(func(i int) string { return fmt.Sprintf(`{"%d":1}`, i) }),
		"as many columns as there may be")
}
