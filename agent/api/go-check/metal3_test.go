// Package check asks Metal3's own Go types whether our objects and CRDs are theirs.
package check

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	ipam "github.com/metal3-io/ip-address-manager/api/v1alpha1"
	"sigs.k8s.io/yaml"
)

const (
	examples  = "../examples"
	manifests = "../../../overlays/box/usr/share/firstlight/manifests"
)

// strict refuses a field that the Go type does not have. FIRSTLIGHT_OBJECTS names a folder of more objects to read,
// for example what `kubectl get bmh -o json` says of a live box, one object a file.
func strict(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

func TestExamplesAreReadWithoutAnUnknownField(t *testing.T) {
	for _, name := range []string{"host.json", "plain-host.json"} {
		strict(t, filepath.Join(examples, name), &v1alpha1.BareMetalHost{})
	}
	strict(t, filepath.Join(examples, "hardware-data.json"), &v1alpha1.HardwareData{})
}

// What is read and written again by Go is the same: no value has changed its meaning or its spelling on the way.
func TestAnExampleSurvivesTheRoundTripThroughTheGoTypes(t *testing.T) {
	path := filepath.Join(examples, "host.json")
	var host v1alpha1.BareMetalHost
	strict(t, path, &host)
	text, err := json.Marshal(&host)
	if err != nil {
		t.Fatal(err)
	}
	var after, before map[string]any
	original, _ := os.ReadFile(path)
	if json.Unmarshal(text, &after) != nil || json.Unmarshal(original, &before) != nil {
		t.Fatal("both are JSON")
	}
	for _, part := range []string{"spec", "status"} {
		missing(t, part, before[part], after[part])
	}
}

// missing reports what `before` has and `after` has not or has differently; empty values may be left out.
func missing(t *testing.T, path string, before, after any) {
	t.Helper()
	switch value := before.(type) {
	case map[string]any:
		other, _ := after.(map[string]any)
		for key, inner := range value {
			missing(t, path+"."+key, inner, other[key])
		}
	case []any:
		other, _ := after.([]any)
		for index, inner := range value {
			if index >= len(other) {
				t.Errorf("%s is shorter afterwards", path)
				return
			}
			missing(t, path+"[]", inner, other[index])
		}
	default:
		empty := before == nil || before == "" || before == false || before == float64(0)
		if !reflect.DeepEqual(before, after) && !(empty && after == nil) {
			t.Errorf("%s: %v has become %v", path, before, after)
		}
	}
}

func TestObjectsOfALiveBoxAreReadWithoutAnUnknownField(t *testing.T) {
	folder := os.Getenv("FIRSTLIGHT_OBJECTS")
	if folder == "" {
		t.Skip("FIRSTLIGHT_OBJECTS is not set")
	}
	paths, _ := filepath.Glob(filepath.Join(folder, "*.json"))
	if len(paths) == 0 {
		t.Fatalf("no objects in %s", folder)
	}
	for _, path := range paths {
		var kind struct{ Kind string }
		text, _ := os.ReadFile(path)
		if err := json.Unmarshal(text, &kind); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch kind.Kind {
		case "BareMetalHost":
			strict(t, path, &v1alpha1.BareMetalHost{})
		case "HardwareData":
			strict(t, path, &v1alpha1.HardwareData{})
		default:
			t.Errorf("%s is a %q", path, kind.Kind)
		}
	}
}

// What the modules of these versions do not have, on purpose: with what is below it.
var more = []string{
	// Of upstream after 1.12.
	"crd-ippool.yaml.spec.allocationStrategy",
	// Published since the version that can be had as a module.
	"crd-baremetalhost.yaml.spec.networkInterfaces",
	"crd-baremetalhost.yaml.spec.raid.softwareRAIDVolumes.rootVolume",
	"crd-baremetalhost.yaml.status.lastAttemptedImage",
	"crd-baremetalhost.yaml.status.provisioning.raid.softwareRAIDVolumes.rootVolume",
	"crd-baremetalhost.yaml.status.provisioningFailCount",
	// Ours: why a pool gives nothing, and what it skips.
	"crd-ippool.yaml.status.conditions",
}

// The schemas and the Go types have the same fields, no more and no less, except [more].
func TestTheSchemasHaveTheFieldsOfTheGoTypes(t *testing.T) {
	for file, kind := range map[string]reflect.Type{
		"crd-baremetalhost.yaml": reflect.TypeFor[v1alpha1.BareMetalHost](),
		"crd-hardwaredata.yaml":  reflect.TypeFor[v1alpha1.HardwareData](),
		"crd-ipaddress.yaml":     reflect.TypeFor[ipam.IPAddress](),
		"crd-ipclaim.yaml":       reflect.TypeFor[ipam.IPClaim](),
		"crd-ippool.yaml":        reflect.TypeFor[ipam.IPPool](),
	} {
		text, err := os.ReadFile(filepath.Join(manifests, file))
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var ours, theirs []string
		schemaFields("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &ours)
		typeFields("", kind, &theirs)
		for _, field := range theirs {
			if !slices.Contains(ours, field) {
				t.Errorf("%s: %s is missing", file, field)
			}
		}
		for _, field := range ours {
			isMore := func(prefix string) bool { return strings.HasPrefix(file+field, prefix) }
			if !slices.Contains(theirs, field) && !slices.ContainsFunc(more, isMore) {
				t.Errorf("%s: %s is not published", file, field)
			}
		}
	}
}

func schemaFields(path string, schema map[string]any, into *[]string) {
	if items, ok := schema["items"].(map[string]any); ok {
		schemaFields(path, items, into)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, inner := range properties {
		if path == "" && name != "spec" && name != "status" {
			continue
		}
		*into = append(*into, path+"."+name)
		schemaFields(path+"."+name, inner.(map[string]any), into)
	}
}

// typeFields goes into the structs that are not written as one value, such as a time.
func typeFields(path string, kind reflect.Type, into *[]string) {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct || kind.Implements(reflect.TypeFor[json.Marshaler]()) {
		return
	}
	for index := range kind.NumField() {
		field := kind.Field(index)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || path == "" && name != "spec" && name != "status" {
			continue
		}
		*into = append(*into, path+"."+name)
		typeFields(path+"."+name, field.Type, into)
	}
}
