// Command site writes the documentation as a site into the folder that it is given.
package main

import (
	"fmt"
	"os"

	"flowlane/docs"
	"flowlane/internal/site"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: site FOLDER")
		os.Exit(2)
	}
	pages, err := site.New(docs.Files, site.Options{})
	if err == nil {
		err = pages.Write(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stdout, "%d files in %s; begin with index.html.\n", len(pages.Paths()), os.Args[1])
}
