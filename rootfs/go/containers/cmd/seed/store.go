package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/containerd/v2/pkg/labels"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
)

const (
	// namespace is the one that CRI works in.
	namespace   = "k8s.io"
	snapshotter = "overlayfs"

	// Places under containerd's root, by the plugins' identifiers.
	metadataDir = "io.containerd.metadata.v1.bolt"
	contentDir  = "io.containerd.content.v1.content"
	snapshotDir = "io.containerd.snapshotter.v1.overlayfs"
)

// seededImage is an image as it now is in the store.
type seededImage struct {
	reference string
	manifest  digest.Digest
	snapshot  string
	bytes     int64
}

// writeSeed makes `out` beside its final name and renames it when it is complete.
func writeSeed(ctx context.Context, out string, specs []imageSpec, created time.Time) (_ []seededImage, err error) {
	if _, err := os.Lstat(out); !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("output %s exists already: remove it, or name another", out)
	}
	root, err := os.MkdirTemp(filepath.Dir(filepath.Clean(out)), ".seed-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, removeTree(root)) }()
	store, err := openStore(root)
	if err != nil {
		return nil, err
	}
	ctx = namespaces.WithNamespace(ctx, namespace)
	seeded, err := store.addAll(ctx, specs, created)
	if err = errors.Join(err, store.close()); err != nil {
		return nil, err
	}
	if err := store.finish(created); err != nil {
		return nil, err
	}
	return seeded, os.Rename(root, out)
}

// imageStore is containerd's metadata database over its own content store and snapshotter.
type imageStore struct {
	root      string
	db        *metadata.DB
	snapshots *storage.MetaStore
	// numbers of the snapshots made so far: images of one tree share a snapshot.
	numbers map[string]string
}

func openStore(root string) (*imageStore, error) {
	if err := os.Mkdir(filepath.Join(root, metadataDir), 0o700); err != nil {
		return nil, err
	}
	blobs, err := local.NewStore(filepath.Join(root, contentDir))
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(root, snapshotDir), 0o700); err != nil {
		return nil, err
	}
	trees, err := storage.NewMetaStore(filepath.Join(root, snapshotDir, "metadata.db"))
	if err != nil {
		return nil, err
	}
	// Nothing is mounted here; with this option given the snapshotter does not try whether it is needed.
	overlayfs, err := overlay.NewSnapshotter(filepath.Join(root, snapshotDir),
		overlay.WithMetaStore(trees), overlay.WithMountOptions([]string{"userxattr"}))
	if err != nil {
		return nil, err
	}
	bdb, err := bolt.Open(filepath.Join(root, metadataDir, "meta.db"), 0o644, nil)
	if err != nil {
		return nil, err
	}
	backends := map[string]snapshots.Snapshotter{snapshotter: &measuredSnapshotter{overlayfs, trees}}
	return &imageStore{
		root: root, db: metadata.NewDB(bdb, blobs, backends), snapshots: trees, numbers: map[string]string{},
	}, nil
}

func (s *imageStore) close() error {
	return errors.Join(s.db.Close(), s.snapshots.Close())
}

func (s *imageStore) addAll(ctx context.Context, specs []imageSpec, created time.Time) ([]seededImage, error) {
	if err := s.db.Init(ctx); err != nil {
		return nil, err
	}
	if err := s.db.Update(func(tx *bolt.Tx) error {
		return metadata.NewNamespaceStore(tx).Create(ctx, namespace, nil)
	}); err != nil {
		return nil, err
	}
	seeded := make([]seededImage, 0, len(specs))
	for _, spec := range specs {
		image, err := s.add(ctx, spec, created)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", spec.Reference, err)
		}
		seeded = append(seeded, image)
	}
	return seeded, nil
}

func (s *imageStore) add(ctx context.Context, spec imageSpec, created time.Time) (seededImage, error) {
	tree := filepath.Join(s.root, "tree")
	if err := placeTree(spec.Rootfs, tree); err != nil {
		return seededImage{}, err
	}
	layer, err := measureTree(tree, created)
	if err != nil {
		return seededImage{}, err
	}
	chain := identity.ChainID([]digest.Digest{layer.digest})
	number, err := s.commitTree(ctx, tree, chain.String(), layer)
	if err != nil {
		return seededImage{}, err
	}
	config, manifest, err := s.writeManifest(ctx, spec.Config, layer, chain, created)
	if err != nil {
		return seededImage{}, err
	}
	// CRI knows an image by two names, its reference and its config's digest. It writes the second when it first sees
	// the image; with both there from the start, containerd has nothing to write at its first start.
	for _, name := range []string{spec.Reference, config.Digest.String()} {
		image := images.Image{Name: name, Target: manifest, Labels: map[string]string{
			labels.CRIContainerdPrefix + ".image":  "managed",
			labels.CRIContainerdPrefix + ".pinned": "pinned",
		}}
		_, err := metadata.NewImageStore(s.db).Create(ctx, image)
		// Two references may share one config, and then its digest as a name.
		if err != nil && !(errdefs.IsAlreadyExists(err) && name != spec.Reference) {
			return seededImage{}, err
		}
	}
	return seededImage{spec.Reference, manifest.Digest, number, layer.usage}, nil
}

// commitTree makes the tree the snapshot `name`, unless there is one already, and returns its number in the backend.
func (s *imageStore) commitTree(ctx context.Context, tree, name string, layer layer) (string, error) {
	if number, made := s.numbers[name]; made {
		return number, removeTree(tree)
	}
	overlayfs := s.db.Snapshotter(snapshotter)
	mounts, err := overlayfs.Prepare(ctx, "seed", "")
	if err != nil {
		return "", err
	}
	// A snapshot without a parent is a plain directory, offered as a bind mount.
	if len(mounts) != 1 || mounts[0].Type != "bind" {
		return "", fmt.Errorf("snapshotter %s offers %v for a first layer, not one directory", snapshotter, mounts)
	}
	if err := os.Remove(mounts[0].Source); err != nil {
		return "", err
	}
	if err := os.Rename(tree, mounts[0].Source); err != nil {
		return "", err
	}
	if err := overlayfs.Commit(withUsage(ctx, layer), name, "seed"); err != nil {
		return "", err
	}
	s.numbers[name] = filepath.Base(filepath.Dir(mounts[0].Source))
	return s.numbers[name], nil
}

// writeManifest stores the image's config and manifest, tied together and to the snapshot by the labels that
// containerd's garbage collector follows.
func (s *imageStore) writeManifest(ctx context.Context, run ocispec.ImageConfig, layer layer, chain digest.Digest, created time.Time) (config, manifest ocispec.Descriptor, err error) {
	config, err = s.writeBlob(ctx, ocispec.MediaTypeImageConfig, ocispec.Image{
		Created:  &created,
		Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"},
		Config:   run,
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.digest}},
	}, map[string]string{"containerd.io/gc.ref.snapshot." + snapshotter: chain.String()})
	if err != nil {
		return config, manifest, err
	}
	manifest, err = s.writeBlob(ctx, ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    config,
		Layers:    []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageLayer, Digest: layer.digest, Size: layer.archive}},
	}, map[string]string{
		"containerd.io/gc.ref.content.config": config.Digest.String(),
		"containerd.io/gc.ref.content.l.0":    layer.digest.String(),
	})
	return config, manifest, err
}

func (s *imageStore) writeBlob(ctx context.Context, mediaType string, value any, refs map[string]string) (ocispec.Descriptor, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	descriptor := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	err = content.WriteBlob(ctx, s.db.ContentStore(), "seed", bytes.NewReader(text), descriptor, content.WithLabels(refs))
	return descriptor, err
}

// finish leaves in the closed store only what containerd reads, in bytes that depend on nothing but the input.
func (s *imageStore) finish(created time.Time) error {
	return errors.Join(
		settleDatabase(filepath.Join(s.root, metadataDir, "meta.db"), created),
		settleDatabase(filepath.Join(s.root, snapshotDir, "metadata.db"), created),
		os.RemoveAll(filepath.Join(s.root, contentDir, "ingest")),
	)
}
