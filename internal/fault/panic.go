package fault

import (
	"fmt"
	"runtime/debug"
)

// Recovered, deferred, has a panic be an error with its stack, for work that must not end the process.
func Recovered(err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
	}
}
