#!/bin/sh
# What runs in a node's namespaces: `sh node.sh FOLDER NAME ADDRESS`. FOLDER has `tree` (the node's file system), `files` (laid over it) and
# `state` (what the node writes), so that a node which is started again is the same one.
set -eu
cd "$1"
hostname "$2"
until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done
ip link set lo up
ip address add "$3/24" dev eth0
ip link set eth0 up
ip route add default via 172.22.0.1
mkdir -p upper work root state
mount -t overlay -o "lowerdir=files:tree,upperdir=upper,workdir=work" overlay root
mkdir -p root/var/lib/containerd
mount --bind state root/var/lib/containerd
cd root
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount --make-rslave sys
mount --make-rslave dev
for folder in run tmp; do mount -t tmpfs tmpfs "$folder"; done
mkdir -p oldroot
# Not chroot: a container's own root would then be this machine's.
pivot_root . oldroot
exec chroot . /bin/sh -eu <<'IN'
export PATH=/usr/sbin:/usr/bin
mount --make-rslave /oldroot
umount -l /oldroot
mount --make-rshared /
sysctl -qw net.ipv4.ip_forward=1
containerd >>/var/log/containerd.log 2>&1 &
# kubeadm writes it, and has nobody else to start a kubelet here.
until [ -e /var/lib/kubelet/kubeadm-flags.env ]; do sleep 0.2; done
# One that ends starts again, perhaps as another version.
while :; do
    . /var/lib/kubelet/kubeadm-flags.env
    # As the unit says.
    eval "$(sed -n 's/^Environment="\([A-Z_]*\)=/\1="/p' /usr/lib/systemd/system/kubelet.service)"
    # shellcheck disable=SC2086 # several arguments
    kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS >>/var/log/kubelet.log 2>&1 &
    echo "$!" >/run/kubelet.pid
    wait "$!" || true
    sleep 1
done
IN
