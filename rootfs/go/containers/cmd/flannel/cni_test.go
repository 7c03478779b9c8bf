package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestPodsGetAddressesOfTheirNodesSubnetAndTheWholeNetworkAsARoute(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.d", "10-flannel.conflist")
	both := []part{{"10.244.3.0/24", "10.244.0.0/16"}, {"fd00:10:244:3::/64", "fd00:10:244::/56"}}
	for count, mtu := range []int{1500, 1450} {
		parts := both[:count+1]
		if err := writeConfig(path, pluginList(parts, mtu)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			CNIVersion string `json:"cniVersion"`
			Plugins    []struct {
				Type string `json:"type"`
				MTU  int    `json:"mtu"`
				IPAM struct {
					Ranges [][]struct{ Subnet string }
					Routes []struct{ Dst string }
				} `json:"ipam"`
			} `json:"plugins"`
		}
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		bridge := list.Plugins[0]
		if bridge.Type != "bridge" || bridge.MTU != mtu || bridge.IPAM.Ranges[0][0].Subnet != "10.244.3.0/24" ||
			bridge.IPAM.Routes[0].Dst != "10.244.0.0/16" || len(bridge.IPAM.Ranges) != len(parts) || list.Plugins[1].Type != "portmap" || list.CNIVersion == "" {
			t.Errorf("wrong list: %s", text)
		}
		if count == 1 && (bridge.IPAM.Ranges[1][0].Subnet != both[1].subnet || bridge.IPAM.Routes[1].Dst != both[1].network) {
			t.Errorf("nothing of IPv6: %s", text)
		}
	}
	if left, _ := filepath.Glob(path + ".*"); left != nil {
		t.Errorf("left behind: %v", left)
	}
}
