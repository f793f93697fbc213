package dialersim

import "slices"

// operation is what a request does; the first five are metered and have counters.
type operation int

const (
	opUpload operation = iota
	opUploadAsync
	opModify
	opQuery
	opDial
	opWhoami
	opCounters
	opHTTP
	operations = int(opHTTP) + 1
	metered    = int(opDial) + 1
)

// operationNames are the names in counters, faults, totals and control requests.
var operationNames = [operations]string{"upload", "upload_async", "modify", "query", "dial", "whoami", "counters",
	"http"}

// spans are the lengths of the windows of every metered operation, in seconds.
var spans = [...]int{60, 3600, 86400}

// defaultLimits are calls per minute, hour and day.
var defaultLimits = [metered][len(spans)]int64{
	opUpload:      {20, 400, 2_000},
	opUploadAsync: {20, 1_000, 2_000},
	opModify:      {140, 7_200, 172_800},
	opQuery:       {450, 15_000, 172_800},
	opDial:        {60, 3_000, 30_000},
}

func (o operation) String() string { return operationNames[o] }

func (o operation) metered() bool { return int(o) < metered }

// operationNamed finds an operation by its name.
func operationNamed(name string) (operation, bool) {
	i := slices.Index(operationNames[:], name)
	return operation(i), i >= 0
}
