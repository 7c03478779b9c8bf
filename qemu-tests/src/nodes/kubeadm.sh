#!/bin/sh
# What kubeadm finds of this machine's kernel is not the node's fault; what it finds of a cluster that is to be upgraded is.
case "$1 ${2:-}" in
"certs "*) exec /usr/bin/kubeadm "$@" ;;
"upgrade apply" | "upgrade node") ignored=SystemVerification ;;
*) ignored=all ;;
esac
exec /usr/bin/kubeadm "$@" "--ignore-preflight-errors=$ignored"
