package main

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// part is what one family of IP gives to the pods of this node.
type part struct {
	// Of this node.
	subnet string
	// Of all pods.
	network string
}

// pluginList is what the container runtime runs for each pod of this node: a bridge, an address out of each of the node's
// subnets, and host ports.
func pluginList(parts []part, mtu int) map[string]any {
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, one := range parts {
		ranges = append(ranges, []map[string]string{{"subnet": one.subnet}})
		routes = append(routes, map[string]string{"dst": one.network})
	}
	bridge := map[string]any{
		"type": "bridge", "bridge": "cni0", "mtu": mtu,
		"isDefaultGateway": true, "hairpinMode": true, "ipMasq": false,
		"ipam": map[string]any{
			"type": "host-local",
			// Not on the disk: after a power cut no pod has an address any more.
			"dataDir": "/run/cni",
			"ranges":  ranges,
			"routes":  routes,
		},
	}
	ports := map[string]any{
		"type": "portmap", "backend": "nftables", "capabilities": map[string]bool{"portMappings": true},
	}
	return map[string]any{"cniVersion": "1.0.0", "name": "flannel", "plugins": []any{bridge, ports}}
}

// writeConfig replaces a file whole: the runtime reads it as soon as it has its name.
func writeConfig(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// The runtime overlooks names without an ending that it knows.
	temporary := path + ".new"
	if err := os.WriteFile(temporary, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
