// Command flannel is upstream's pod network over its packages: subnets from the nodes' podCIDR, VXLAN or plain routes,
// nftables. Upstream's own main also links back ends of public clouds, and leaves the CNI configuration to a shell in an
// init container and to a plugin that turns it into one for `bridge`; here it is written by itself once pods can be
// connected, so that a node is not Ready before.
//
// It reads the network from -net-conf (upstream's net-conf.json), the node's name from NODE_NAME and its addresses, one of
// each family, from NODE_IPS.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
)

const (
	annotations = "flannel.alpha.coreos.com"
	// Other programs on a node look for it there.
	subnetFile = "/run/flannel/subnet.env"
	// Only upstream's iptables needs rules written again and again.
	resyncSeconds = 60
)

func main() {
	netConf := flag.String("net-conf", "/etc/flannel/net-conf.json", "the network, as upstream's net-conf.json")
	cniConf := flag.String("cni-conf", "/etc/cni/net.d/10-flannel.conflist", "the file to write for the container runtime")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *netConf, *cniConf, strings.Split(os.Getenv("NODE_IPS"), ",")); err != nil {
		fmt.Fprintln(os.Stderr, "flannel:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, netConf, cniConf string, addresses []string) error {
	manager, err := kube.NewSubnetManager(ctx, "", "", annotations, netConf, true)
	if err != nil {
		return err
	}
	config, err := manager.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("network in %s: %w", netConf, err)
	}
	if !config.EnableNFTables || !config.EnableIPv4 {
		return fmt.Errorf("network in %s: this build needs EnableNFTables and EnableIPv4", netConf)
	}
	node, err := nodeAddresses(addresses, config.EnableIPv6)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	network, err := register(ctx, &running, manager, config, node)
	if err != nil {
		return err
	}
	if err := setRules(ctx, config, network); err != nil {
		return err
	}
	lease := network.Lease()
	if err := manager.HandleSubnetFile(subnetFile, config, true, lease.Subnet, lease.IPv6Subnet, network.MTU()); err != nil {
		return err
	}
	parts := []part{{lease.Subnet.String(), config.Network.String()}}
	if config.EnableIPv6 {
		parts = append(parts, part{lease.IPv6Subnet.String(), config.IPv6Network.String()})
	}
	if err := writeConfig(cniConf, pluginList(parts, network.MTU())); err != nil {
		return err
	}
	running.Go(func() { network.Run(ctx) })
	err = manager.CompleteLease(ctx, lease, &running)
	running.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// addresses of the node: the second is empty in a network of IPv4.
type addresses struct{ ipv4, ipv6 string }

// nodeAddresses finds one of each family that the network carries.
func nodeAddresses(all []string, hasIPv6 bool) (addresses, error) {
	var node addresses
	for _, text := range all {
		address, err := netip.ParseAddr(text)
		switch {
		case err != nil:
		case address.Is4():
			node.ipv4 = text
		case hasIPv6:
			node.ipv6 = text
		}
	}
	if node.ipv4 == "" || hasIPv6 && node.ipv6 == "" {
		return node, fmt.Errorf("NODE_IPS is %q, without one address of each family of the network: "+
			"set it to status.hostIPs of the pod, and kubelet's --node-ip to both", strings.Join(all, ","))
	}
	return node, nil
}

// register gives this node its part of the network, at the interface that has the node's addresses.
func register(ctx context.Context, running *sync.WaitGroup, manager subnet.Manager, config *subnet.Config, node addresses) (backend.Network, error) {
	stack, err := ipmatch.GetIPFamily(true, config.EnableIPv6)
	if err != nil {
		return nil, err
	}
	face, err := ipmatch.LookupExtIface(node.ipv4, "", "", stack, ipmatch.PublicIPOpts{PublicIPv6: node.ipv6})
	if err != nil {
		return nil, err
	}
	kind, err := backend.NewManager(ctx, manager, face).GetBackend(config.BackendType)
	if err != nil {
		return nil, err
	}
	return kind.RegisterNetwork(ctx, running, config)
}

// setRules lets the kernel forward what comes from and goes to pods, and hides pods behind the node outside of the network.
func setRules(ctx context.Context, config *subnet.Config, network backend.Network) error {
	rules := &nftables.NFTablesManager{}
	if err := rules.Init(ctx); err != nil {
		return err
	}
	var none ip.IP4Net
	err := rules.SetupAndEnsureMasqRules(ctx, config.Network, none, none, config.IPv6Network, config.IPv6Network,
		config.IPv6Network, network.Lease(), resyncSeconds, false)
	if err != nil {
		return err
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resyncSeconds)
	return nil
}
