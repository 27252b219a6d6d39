// Command public prints the address of the public npm registry, as a library
// that follows npm's defaults knows it. It is a program of its own because
// that library is large: it is only downloaded and built on a machine where
// neither the environment nor an npm names a registry.
package main

import (
	"fmt"
	"os"

	"github.com/google/osv-scalibr/clients/datasource"
)

func main() {
	fmt.Fprintln(os.Stdout, datasource.ParseNPMRegistryInfo(nil).ScopeURLs[""])
}
