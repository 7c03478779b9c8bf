// Command kube is all of upstream Kubernetes, and etcd, in one file: the programs share most of their code, so one
// binary with links is a third of the size of the separate ones. Which program it is comes from the name it is called by
// (`kubelet`, a link to `kube`) or, when that is `kube`, from the first argument (`kube kubelet ...`).
//
// To add a program: one line in `programs`, one link in the image builder.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"golang.org/x/sys/unix"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmutil "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps a name to what runs under it.
var programs = map[string]func(){
	"etcd":                    func() { relax(); etcdmain.Main(os.Args) },
	"etcdctl":                 ctlv3.MustStart,
	"kube-apiserver":          func() { serve(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { serve(controllermanager.NewControllerManagerCommand()) },
	"kube-proxy":              func() { serve(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() { serve(scheduler.NewSchedulerCommand()) },
	"kubeadm":                 func() { kubeadmutil.HandleError(kubeadm.Run()) },
	"kubectl":                 func() { kubectlutil.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())) },
	"kubelet":                 func() { serve(kubelet.NewKubeletCommand(context.Background())) },
}

// slack is how late a timer of a server may be, in nanoseconds.
const slack = 5_000_000

// relax gives all threads, also those to come, that slack: Go's runtime watches a busy program every 20 microseconds, and
// each look is a switch between threads. On the box systemd has given it already; in a node's pods nobody else does. A kernel
// that refuses is no reason not to run.
func relax() {
	_, _, _ = syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, slack, 0)
}

// serve runs a component and exits with its code; component-base prints the error.
func serve(component *cobra.Command) {
	relax()
	os.Exit(cli.Run(component))
}

func main() {
	os.Args[0] = filepath.Base(os.Args[0])
	if os.Args[0] == "kube" && len(os.Args) > 1 {
		os.Args = os.Args[1:]
	}
	program, known := programs[os.Args[0]]
	if !known {
		names := slices.Sorted(maps.Keys(programs))
		fmt.Fprintf(os.Stderr, "kube: no program %q; call it as `kube NAME [argument...]` with NAME one of %v\n", os.Args[0], names)
		os.Exit(2)
	}
	// Loading etcdctl switches this on for all: `kubectl d` shall stay an error.
	cobra.EnablePrefixMatching = os.Args[0] == "etcdctl"
	program()
}
