# `kubectl` of an operator talks to the box.
export KUBECONFIG=/var/lib/firstlight/kube/admin.conf
