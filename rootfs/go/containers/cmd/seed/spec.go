package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// imageSpec is an image as its JSON file describes it.
type imageSpec struct {
	// Reference is the full name with a tag, as pods write it.
	Reference string `json:"reference"`
	// Rootfs is a directory or an uncompressed tar archive.
	Rootfs string `json:"rootfs"`
	// Config is what the container runs by default.
	Config ocispec.ImageConfig `json:"config"`
}

// loadSpecs reads image files; it refuses unknown keys, names that CRI would spell differently, and one name twice.
func loadSpecs(files []string) ([]imageSpec, error) {
	specs := make([]imageSpec, 0, len(files))
	seen := map[string]string{}
	for _, file := range files {
		spec, err := loadSpec(file)
		if err != nil {
			return nil, fmt.Errorf("image file %s: %w", file, err)
		}
		if first, twice := seen[spec.Reference]; twice {
			return nil, fmt.Errorf("image file %s: %s is already the name of the image in %s", file, spec.Reference, first)
		}
		seen[spec.Reference] = file
		specs = append(specs, spec)
	}
	return specs, nil
}

func loadSpec(file string) (imageSpec, error) {
	var spec imageSpec
	text, err := os.ReadFile(file)
	if err != nil {
		return spec, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		return spec, err
	}
	named, err := reference.ParseNormalizedNamed(spec.Reference)
	if err != nil {
		return spec, fmt.Errorf("reference %q: %w", spec.Reference, err)
	}
	if _, tagged := named.(reference.Tagged); !tagged || named.String() != spec.Reference {
		return spec, fmt.Errorf("reference %q is not a full name: write registry/name:tag", spec.Reference)
	}
	if spec.Rootfs == "" {
		return spec, fmt.Errorf("no rootfs: name a directory or an uncompressed tar archive")
	}
	if !filepath.IsAbs(spec.Rootfs) {
		spec.Rootfs = filepath.Join(filepath.Dir(file), spec.Rootfs)
	}
	return spec, nil
}
