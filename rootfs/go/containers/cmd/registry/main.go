// Command registry is upstream's server (CNCF distribution) with the one storage driver that the box uses: the full set,
// with its cloud clients, is three times the size.
package main

import (
	"os"

	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"

	"github.com/distribution/distribution/v3/registry"
)

func main() {
	if err := registry.RootCmd.Execute(); err != nil {
		os.Exit(1) // the command has said why
	}
}
