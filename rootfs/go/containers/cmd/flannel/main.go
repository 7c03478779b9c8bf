// Command flannel is upstream's pod network over its packages: subnets from the nodes' podCIDR, VXLAN or plain routes,
// nftables. Upstream's own main also links back ends of public clouds, and leaves the CNI configuration to a shell in an
// init container and to a plugin that turns it into one for `bridge`; here it is written by itself once pods can be
// connected, so that a node is not Ready before.
//
// It reads the network from -net-conf (upstream's net-conf.json), the node's name from NODE_NAME and its address from
// NODE_IP.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
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
	if err := run(ctx, *netConf, *cniConf, os.Getenv("NODE_IP")); err != nil {
		fmt.Fprintln(os.Stderr, "flannel:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, netConf, cniConf, address string) error {
	if address == "" {
		return errors.New("NODE_IP is empty: set it to status.hostIP of the pod")
	}
	manager, err := kube.NewSubnetManager(ctx, "", "", annotations, netConf, true)
	if err != nil {
		return err
	}
	config, err := manager.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("network in %s: %w", netConf, err)
	}
	if !config.EnableNFTables || !config.EnableIPv4 || config.EnableIPv6 {
		return fmt.Errorf("network in %s: this build needs EnableNFTables, and carries IPv4 only", netConf)
	}
	var running sync.WaitGroup
	network, err := register(ctx, &running, manager, config, address)
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
	if err := writeConfig(cniConf, pluginList(lease.Subnet.String(), config.Network.String(), network.MTU())); err != nil {
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

// register gives this node its part of the network, at the interface that has the node's address.
func register(ctx context.Context, running *sync.WaitGroup, manager subnet.Manager, config *subnet.Config, address string) (backend.Network, error) {
	stack, err := ipmatch.GetIPFamily(true, false)
	if err != nil {
		return nil, err
	}
	face, err := ipmatch.LookupExtIface(address, "", "", stack, ipmatch.PublicIPOpts{})
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
