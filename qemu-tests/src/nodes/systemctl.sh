#!/bin/sh
# What orders want of systemd, which a node without a machine does not have: `node.sh` starts the kubelet again.
set -eu
case "$*" in
daemon-reload) ;;
"enable --now keepalived") touch /run/keepalived-enabled && keepalived --log-detail ;;
"is-enabled keepalived") test -e /run/keepalived-enabled ;;
"stop keepalived") kill "$(cat /run/keepalived.pid)" && while [ -e /run/keepalived.pid ]; do sleep 0.1; done ;;
"start keepalived") keepalived --log-detail ;;
# One that has just ended is about to start, and reads everything anew.
"restart kubelet") kill "$(cat /run/kubelet.pid)" 2>/dev/null || true ;;
*)
    echo "systemctl $*: there is no systemd here" >&2
    exit 1
    ;;
esac
