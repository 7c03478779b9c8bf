package main

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serve answers each request with the next of the given statuses, and the last one from then on.
func serve(t *testing.T, body string, statuses ...int) (url, ca string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(statuses[0])
		_, _ = io.WriteString(w, body)
		if len(statuses) > 1 {
			statuses = statuses[1:]
		}
	}))
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.crt")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL + "/readyz", ca
}

func Test_it_waits_through_refusals_and_says_each_reason_once(t *testing.T) {
	url, ca := serve(t, "[+]ping ok\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\n", 500, 500, 200)
	var log strings.Builder
	if err := await(context.Background(), ca, url, &log); err != nil {
		t.Fatal(err)
	}
	want := "waiting: " + url + " answers 500 Internal Server Error, not ready: poststarthook/rbac/bootstrap-roles\n"
	if log.String() != want {
		t.Errorf("log %q, want %q", log.String(), want)
	}
}

func Test_it_ends_with_its_context_and_the_last_reason(t *testing.T) {
	url, ca := serve(t, "", 503)
	ctx, cancel := context.WithCancel(context.Background())
	err := await(ctx, ca, url, writerFunc(cancel))
	if err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("error: %v", err)
	}
}

func Test_a_file_without_a_certificate_is_refused(t *testing.T) {
	url, ca := serve(t, "", 200)
	if err := os.WriteFile(ca, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := await(context.Background(), ca, url, io.Discard); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("error: %v", err)
	}
}

// writerFunc calls a function at the first thing written.
type writerFunc func()

func (f writerFunc) Write(text []byte) (int, error) {
	f()
	return len(text), nil
}
