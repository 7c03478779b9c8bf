package main

import (
	"context"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/storage"
)

// measuredSnapshotter commits a snapshot with the usage that the tree was measured to have. Overlayfs itself would record
// the blocks that the build host's file system happens to use.
type measuredSnapshotter struct {
	snapshots.Snapshotter
	store *storage.MetaStore
}

type usageKey struct{}

func withUsage(ctx context.Context, tree layer) context.Context {
	return context.WithValue(ctx, usageKey{}, snapshots.Usage{Inodes: tree.inodes, Size: tree.usage})
}

func (s *measuredSnapshotter) Commit(ctx context.Context, name, key string, opts ...snapshots.Opt) error {
	usage, _ := ctx.Value(usageKey{}).(snapshots.Usage)
	return s.store.WithTransaction(ctx, true, func(ctx context.Context) error {
		_, err := storage.CommitActive(ctx, key, name, usage, opts...)
		return err
	})
}
