// Package definition owns flows as their authors write them: definitions, their versions, and the plans that versions
// compile to. It promises that what it stores compiles against the catalog, that a version never changes, and that a
// status moves only as drawn in status.go. It makes no call, runs nothing and knows no HTTP.
package definition
