package provider

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkReadRows reads the answer to a bulk call of 50,000 records that lists those which it rejected.
func BenchmarkReadRows(b *testing.B) {
	_, up := action(b, testCatalog(b), "dialer__api__upload")
	for _, rejected := range []int{0, 50, 5000} {
		var list []string
		for i := range rejected {
			list = append(list, fmt.Sprintf(`{"row":%d,"code":"bad_phone","reason":"phone is no number"}`, i*7))
		}
		ans := answered(200, `{"import_id":"i1","rejected":[`+strings.Join(list, ",")+`]}`)
		b.Run(fmt.Sprint(rejected), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r := Read(up, ans, 50000); r.Kind != Success {
					b.Fatal(r)
				}
			}
		})
	}
}
