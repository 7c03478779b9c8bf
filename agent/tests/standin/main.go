// Command standin is the one thing that a test needs of a kubelet: it forwards ports. It listens where a node would, and
// forwards to the same address, so that a test's etcd on that address looks like the node's static pod.
//
//	standin -cert server.crt -key server.key 172.22.0.101
//
// It is part of no image; agent/tests/cluster_api starts it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

const path = "/portForward/"

// forwarder connects streams to ports of one address.
type forwarder struct{ address string }

func (f forwarder) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(f.address, fmt.Sprint(port)))
	if err != nil {
		return err
	}
	defer conn.Close()
	done := make(chan error, 2)
	go func() { _, err := io.Copy(conn, stream); done <- err }()
	go func() { _, err := io.Copy(stream, conn); done <- err }()
	return <-done
}

func main() {
	cert := flag.String("cert", "", "server certificate")
	key := flag.String("key", "", "its key")
	flag.Parse()
	address := flag.Arg(0)
	http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		// /portForward/NAMESPACE/POD
		_, pod, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, path), "/")
		options, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, forwarder{address}, pod, "", options, time.Minute, 30*time.Second, portforward.SupportedProtocols)
	})
	log.Fatal(http.ListenAndServeTLS(net.JoinHostPort(address, "10250"), *cert, *key, nil))
}
