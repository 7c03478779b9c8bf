package main

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
)

// placeTree makes the directory `to` a copy of `from`, which is a directory or a tar archive.
func placeTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	modes := directoryModes{}
	if info.IsDir() {
		err = linkTree(from, to, modes)
	} else {
		err = extractTree(from, to, modes)
	}
	if err != nil {
		return err
	}
	// A container's user must be able to enter its root, however the tree was made.
	modes[to] = 0o755
	return modes.apply()
}

// directoryModes holds the final modes of directories back until they are filled: one may be read-only.
type directoryModes map[string]fs.FileMode

func (modes directoryModes) apply() error {
	for path, mode := range modes {
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes a tree even where its directories are read-only to their owner.
func removeTree(tree string) error {
	err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.RemoveAll(tree))
}

const keptBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

func linkTree(from, to string, modes directoryModes) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil || relative == "." {
			return err
		}
		target := filepath.Join(to, relative)
		switch info.Mode().Type() {
		case fs.ModeDir:
			modes[target] = info.Mode() & keptBits
			return os.Mkdir(target, 0o700)
		case fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case 0:
			// Linking fails across file systems and for files of other users.
			if os.Link(path, target) == nil {
				return nil
			}
			return copyFile(path, target, info.Mode()&keptBits)
		}
		return nil
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Chmod(mode), target.Close())
}

// extractTree unpacks an archive; os.Root keeps every name, link or not, inside `to`.
func extractTree(archive, to string, modes directoryModes) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s is no uncompressed tar archive: %w", archive, err)
		}
		if err := extractEntry(root, header, reader, modes); err != nil {
			return fmt.Errorf("%s: %s: %w", archive, header.Name, err)
		}
	}
}

func extractEntry(root *os.Root, header *tar.Header, content io.Reader, modes directoryModes) error {
	name := filepath.Clean(header.Name)
	if name == "." {
		return nil
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	mode := header.FileInfo().Mode() & keptBits
	switch header.Typeflag {
	case tar.TypeDir:
		modes[filepath.Join(root.Name(), name)] = mode
		return root.MkdirAll(name, 0o700)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return root.Link(filepath.Clean(header.Linkname), name)
	case tar.TypeReg:
		file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Chmod(mode), file.Close())
	}
	return nil
}

// layer is what an image's manifest and the snapshotter say about a tree.
type layer struct {
	digest digest.Digest
	// archive is the size of the tree as a tar archive, usage that of its files in whole blocks.
	archive, usage, inodes int64
}

const blockSize = 4096

// measureTree digests a tree as the tar archive it would be: names in order, all owned by root, all of one time.
func measureTree(tree string, modified time.Time) (layer, error) {
	hash := sha256.New()
	var counted countingWriter
	archive := tar.NewWriter(io.MultiWriter(hash, &counted))
	var measured layer
	err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		measured.inodes++
		if info.Mode().IsRegular() {
			measured.usage += (info.Size() + blockSize - 1) / blockSize * blockSize
		}
		name, err := filepath.Rel(tree, path)
		if err != nil || name == "." {
			return err
		}
		return appendEntry(archive, path, name, info, modified)
	})
	if err = errors.Join(err, archive.Close()); err != nil {
		return layer{}, err
	}
	measured.digest = digest.NewDigest(digest.SHA256, hash)
	measured.archive = int64(counted)
	return measured, nil
}

func appendEntry(archive *tar.Writer, path, name string, info fs.FileInfo, modified time.Time) error {
	link := ""
	if info.Mode().Type() == fs.ModeSymlink {
		var err error
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	from, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	if info.IsDir() {
		name += "/"
	}
	// Only what stays the same wherever the tree is made: no owner's name, no time of access, no inode.
	header := &tar.Header{
		Format: tar.FormatPAX, Typeflag: from.Typeflag, Name: name, Linkname: link,
		Mode: from.Mode, Size: from.Size, ModTime: modified,
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return errors.Join(err, file.Close())
}

type countingWriter int64

func (count *countingWriter) Write(data []byte) (int, error) {
	*count += countingWriter(len(data))
	return len(data), nil
}
