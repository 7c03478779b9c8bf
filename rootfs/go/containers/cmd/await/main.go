// Command await returns when an HTTPS address answers 200. Units that need a server, and not only its process, are
// ordered behind one of it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	interval = time.Second
	// patience is for one answer; an emulated machine is slow.
	patience = 30 * time.Second
)

func main() {
	ca := flag.String("ca", "", "file with the certificate of the server's authority")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: await --ca FILE https://ADDRESS/PATH\n\nWaits until the address answers 200, and prints why it does not yet, once for each reason.")
	}
	flag.Parse()
	if *ca == "" || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := await(ctx, *ca, flag.Arg(0), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "await:", err)
		os.Exit(1)
	}
}

// await asks until the answer is 200 or the context ends.
func await(ctx context.Context, ca, url string, log io.Writer) error {
	certificates, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificates) {
		return fmt.Errorf("%s holds no certificate", ca)
	}
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
		Timeout:   patience,
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	said := ""
	for {
		reason := ask(ctx, client, url)
		if reason == nil {
			return nil
		}
		if text := reason.Error(); text != said && ctx.Err() == nil {
			fmt.Fprintln(log, "waiting:", text)
			said = text
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), reason)
		case <-ticker.C:
		}
	}
}

// ask returns nil, or what is not well yet.
func ask(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil || response.StatusCode == http.StatusOK {
		return err
	}
	return fmt.Errorf("%s answers %s%s", url, response.Status, failedChecks(string(body)))
}

// failedChecks picks the lines that start with [-] from the API server's report.
func failedChecks(report string) string {
	failed := ""
	for line := range strings.Lines(report) {
		if name, bad := strings.CutPrefix(strings.TrimSpace(line), "[-]"); bad {
			name, _, _ = strings.Cut(name, " ")
			failed += " " + name
		}
	}
	if failed == "" {
		return ""
	}
	return ", not ready:" + failed
}
