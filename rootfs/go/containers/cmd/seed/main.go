// Command seed writes the root directory of a containerd that has its images already: metadata databases, manifests and
// configs in the content store, and each image's tree as a committed snapshot of the overlayfs snapshotter. It does so
// with containerd's own libraries, and without a containerd, a mount, a network or any privilege, so that the box never
// has to pull or import anything. Layer blobs are left out, as containerd itself leaves them out with
// `discard_unpacked_layers`.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/containerd/log"
)

const usage = `usage: seed -o OUT IMAGE.json...

Writes OUT, a containerd root directory that holds the given images in namespace
k8s.io, pinned and marked as the kubelet's, and prints a line for each:
REFERENCE, manifest digest, snapshot number, bytes, separated by tabs.

IMAGE.json: {
  "reference": "firstlight.internal/pause:3.10.2",
  "rootfs":    "pause",        a directory, or an uncompressed tar archive;
                               relative to the file that names it
  "config":    {"Entrypoint": ["/pause"], "User": "65535:65535"}
                               "config" of an OCI image configuration
}

OUT must not exist, and is made complete or not at all. Files of a rootfs
directory are hard-linked where that is possible: do not change them in place
afterwards. Everything is to be owned by root (mksquashfs -all-root), whatever
the owner here; device nodes, sockets, extended attributes are left out.

SOURCE_DATE_EPOCH (default 0) is the time that all records and layers carry.
The same input gives the same bytes.
`

func main() {
	flags := flag.NewFlagSet("seed", flag.ExitOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	out := flags.String("o", "", "")
	_ = flags.Parse(os.Args[1:]) // exits by itself
	if *out == "" || flags.NArg() == 0 {
		flags.Usage()
		os.Exit(2)
	}
	// The libraries warn of what the build host's file system lacks; that is nothing to an image.
	if err := log.SetLevel("error"); err != nil {
		panic(err)
	}
	if err := run(context.Background(), *out, flags.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "seed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, files []string, report io.Writer) error {
	epoch, err := sourceDate(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	specs, err := loadSpecs(files)
	if err != nil {
		return err
	}
	seeded, err := writeSeed(ctx, out, specs, epoch)
	if err != nil {
		return err
	}
	for _, image := range seeded {
		fmt.Fprintf(report, "%s\t%s\t%s\t%d\n", image.reference, image.manifest, image.snapshot, image.bytes)
	}
	return nil
}

// sourceDate reads the value of SOURCE_DATE_EPOCH: seconds since 1970, or nothing for 0.
func sourceDate(value string) (time.Time, error) {
	if value == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%q is not a number of seconds since 1970: set it to one, or unset it", value)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
