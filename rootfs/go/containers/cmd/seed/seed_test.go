package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/platforms"
	"github.com/opencontainers/image-spec/identity"
	bolt "go.etcd.io/bbolt"
)

const pause = "firstlight.internal/pause:3.10.2"

var ctx = namespaces.WithNamespace(context.Background(), namespace)

// writeInput makes a small tree and the file that describes it as an image, and returns that file.
func writeInput(t *testing.T, reference string) string {
	t.Helper()
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	must(t, os.MkdirAll(filepath.Join(tree, "etc", "locked"), 0o755))
	must(t, os.WriteFile(filepath.Join(tree, "pause"), []byte("#!program\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(tree, "etc", "locked", "secret"), []byte("x"), 0o600))
	must(t, os.Chmod(filepath.Join(tree, "etc", "locked"), 0o500))
	must(t, os.Symlink("../pause", filepath.Join(tree, "etc", "link")))
	must(t, os.Link(filepath.Join(tree, "pause"), filepath.Join(tree, "again")))
	t.Cleanup(func() { _ = removeTree(tree) })
	return writeSpec(t, dir, reference, "tree")
}

func writeSpec(t *testing.T, dir, reference, rootfs string) string {
	t.Helper()
	file := filepath.Join(dir, "image.json")
	text := fmt.Sprintf(`{"reference": %q, "rootfs": %q, "config": {"Entrypoint": ["/pause"], "User": "65535"}}`, reference, rootfs)
	must(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func seed(t *testing.T, files ...string) (out, report string) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "out")
	var lines bytes.Buffer
	must(t, run(context.Background(), out, files, &lines))
	t.Cleanup(func() { _ = removeTree(out) })
	return out, lines.String()
}

// openSeed opens a seed as containerd does.
func openSeed(t *testing.T, out string) *metadata.DB {
	t.Helper()
	blobs, err := local.NewStore(filepath.Join(out, contentDir))
	must(t, err)
	overlayfs, err := overlay.NewSnapshotter(filepath.Join(out, snapshotDir), overlay.WithMountOptions([]string{"userxattr"}))
	must(t, err)
	bdb, err := bolt.Open(filepath.Join(out, metadataDir, "meta.db"), 0o644, nil)
	must(t, err)
	db := metadata.NewDB(bdb, blobs, map[string]snapshots.Snapshotter{snapshotter: overlayfs})
	must(t, db.Init(ctx))
	t.Cleanup(func() { _ = db.Close(); _ = overlayfs.Close() })
	return db
}

func Test_containerd_finds_a_seeded_image_with_its_config_and_its_unpacked_tree(t *testing.T) {
	out, report := seed(t, writeInput(t, pause))
	db := openSeed(t, out)
	image, err := metadata.NewImageStore(db).Get(ctx, pause)
	must(t, err)
	if image.Labels["io.cri-containerd.image"] != "managed" || image.Labels["io.cri-containerd.pinned"] != "pinned" {
		t.Errorf("labels by which CRI knows and keeps an image: %v", image.Labels)
	}
	available, _, present, missing, err := images.Check(ctx, db.ContentStore(), image.Target, platforms.OnlyStrict(platforms.MustParse("linux/amd64")))
	must(t, err)
	if !available || len(present) != 1 || len(missing) != 1 || !images.IsLayerType(missing[0].MediaType) {
		t.Errorf("want the config present and only the layer missing, got available=%v present=%v missing=%v", available, present, missing)
	}
	config, err := image.Config(ctx, db.ContentStore(), platforms.All)
	must(t, err)
	if _, err := metadata.NewImageStore(db).Get(ctx, config.Digest.String()); err != nil {
		t.Errorf("the name by which CRI identifies the image: %v", err)
	}
	layers, err := image.RootFS(ctx, db.ContentStore(), platforms.All)
	must(t, err)
	info, err := db.Snapshotter(snapshotter).Stat(ctx, identity.ChainID(layers).String())
	must(t, err)
	if info.Kind != snapshots.KindCommitted {
		t.Errorf("the snapshot is %v, not committed", info.Kind)
	}
	want := fmt.Sprintf("%s\t%s\t1\t%d\n", pause, image.Target.Digest, 3*blockSize)
	if report != want {
		t.Errorf("report %q, want %q", report, want)
	}
	checkTree(t, filepath.Join(out, snapshotDir, "snapshots", "1", "fs"))
}

func checkTree(t *testing.T, tree string) {
	t.Helper()
	for name, mode := range map[string]fs.FileMode{
		".": fs.ModeDir | 0o755, "pause": 0o755, "again": 0o755, "etc/locked": fs.ModeDir | 0o500, "etc/locked/secret": 0o600,
	} {
		info, err := os.Lstat(filepath.Join(tree, name))
		must(t, err)
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), mode)
		}
	}
	if link, err := os.Readlink(filepath.Join(tree, "etc", "link")); link != "../pause" {
		t.Errorf("link to %q, %v", link, err)
	}
}

func Test_garbage_collection_removes_nothing_that_was_seeded(t *testing.T) {
	out, _ := seed(t, writeInput(t, pause))
	db := openSeed(t, out)
	before := contents(t, db)
	_, err := db.GarbageCollect(ctx)
	must(t, err)
	if after := contents(t, db); after != before || !strings.Contains(before, "snapshot") {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	// The collector is at work: without its images nothing refers to the rest.
	list, err := metadata.NewImageStore(db).List(ctx)
	must(t, err)
	for _, image := range list {
		must(t, metadata.NewImageStore(db).Delete(ctx, image.Name))
	}
	_, err = db.GarbageCollect(ctx)
	must(t, err)
	if after := contents(t, db); after != "" {
		t.Errorf("still there without images:\n%s", after)
	}
}

// contents lists the blobs and snapshots that the metadata database knows.
func contents(t *testing.T, db *metadata.DB) string {
	t.Helper()
	var list strings.Builder
	must(t, db.ContentStore().Walk(ctx, func(info content.Info) error {
		fmt.Fprintln(&list, "blob", info.Digest)
		return nil
	}))
	must(t, db.Snapshotter(snapshotter).Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		fmt.Fprintln(&list, "snapshot", info.Name)
		return nil
	}))
	return list.String()
}

func Test_the_same_input_gives_the_same_bytes(t *testing.T) {
	names := []string{pause, "firstlight.internal/other:1", "firstlight.internal/third:2"}
	digests := map[string]int{}
	for range 3 {
		var files []string
		for _, name := range names {
			files = append(files, writeInput(t, name))
		}
		out, _ := seed(t, files...)
		digests[digestDirectory(t, out)]++
	}
	if len(digests) != 1 {
		t.Errorf("three runs, %d different results", len(digests))
	}
}

func digestDirectory(t *testing.T, dir string) string {
	t.Helper()
	hash := sha256.New()
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		must(t, err)
		info, err := entry.Info()
		must(t, err)
		fmt.Fprintln(hash, strings.TrimPrefix(path, dir), info.Mode())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			must(t, err)
			fmt.Fprintln(hash, len(text))
			hash.Write(text)
		}
		return nil
	}))
	return hex.EncodeToString(hash.Sum(nil))
}

func Test_images_of_one_tree_share_its_snapshot(t *testing.T) {
	out, _ := seed(t, writeInput(t, pause), writeInput(t, "firstlight.internal/other:1"))
	entries, err := os.ReadDir(filepath.Join(out, snapshotDir, "snapshots"))
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("two images of one tree have %d snapshots", len(entries))
	}
}

func Test_a_tar_archive_gives_the_layer_that_its_directory_gives(t *testing.T) {
	fromDirectory := writeInput(t, pause)
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "tree.tar"))
	must(t, err)
	writer := tar.NewWriter(file)
	must(t, writer.AddFS(os.DirFS(filepath.Join(filepath.Dir(fromDirectory), "tree"))))
	must(t, writer.WriteHeader(&tar.Header{Name: "dev/null", Typeflag: tar.TypeChar}))
	must(t, writer.Close())
	must(t, file.Close())
	_, first := seed(t, fromDirectory)
	_, second := seed(t, writeSpec(t, dir, pause, "tree.tar"))
	// An archive with a device has the directory of that device, but never the device.
	if first == second {
		t.Error("the directory dev/ of the archive is missing")
	}
	must(t, os.Mkdir(filepath.Join(filepath.Dir(fromDirectory), "tree", "dev"), 0o755))
	if _, first = seed(t, fromDirectory); first != second {
		t.Errorf("directory: %s, archive: %s", first, second)
	}
}

func Test_an_archive_cannot_write_outside_its_tree(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "tree.tar"))
	must(t, err)
	writer := tar.NewWriter(file)
	must(t, writer.WriteHeader(&tar.Header{Name: "way", Linkname: dir, Typeflag: tar.TypeSymlink}))
	must(t, writer.WriteHeader(&tar.Header{Name: "way/out", Typeflag: tar.TypeReg, Mode: 0o644}))
	must(t, writer.Close())
	must(t, file.Close())
	out := filepath.Join(dir, "out")
	err = run(context.Background(), out, []string{writeSpec(t, dir, pause, "tree.tar")}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "way/out") {
		t.Errorf("error: %v", err)
	}
	if _, err := os.Lstat(out); err == nil {
		t.Errorf("%s was written", out)
	}
}

func Test_bad_image_files_are_refused_with_the_reason(t *testing.T) {
	for text, reason := range map[string]string{
		`{"reference": "pause", "rootfs": "x"}`:                                   "full name",
		`{"reference": "firstlight.internal/pause", "rootfs": "x"}`:               "full name",
		`{"reference": "firstlight.internal/pause:1"}`:                            "no rootfs",
		`{"reference": "firstlight.internal/pause:1", "rootfs": "x", "confg": 1}`: "confg",
	} {
		file := filepath.Join(t.TempDir(), "image.json")
		must(t, os.WriteFile(file, []byte(text), 0o644))
		if _, err := loadSpecs([]string{file}); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: error %v, want one with %q", text, err, reason)
		}
	}
	file := writeInput(t, pause)
	if _, err := loadSpecs([]string{file, file}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("one name twice: %v", err)
	}
}

func Test_an_existing_output_is_left_alone(t *testing.T) {
	out := t.TempDir()
	err := run(context.Background(), out, []string{writeInput(t, pause)}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("error: %v", err)
	}
}

func Test_records_carry_the_source_date(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	out, _ := seed(t, writeInput(t, pause))
	image, err := metadata.NewImageStore(openSeed(t, out)).Get(ctx, pause)
	must(t, err)
	if want := time.Unix(1700000000, 0).UTC(); !image.CreatedAt.Equal(want) || !image.UpdatedAt.Equal(want) {
		t.Errorf("created %v, updated %v, want %v", image.CreatedAt, image.UpdatedAt, want)
	}
}
