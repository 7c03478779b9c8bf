{{- /* The API by its own address: one of its Service is nobody's after a node's start, until kube-proxy has come, and what asked then is not
answered for minutes. */ -}}
{{- define "api" -}}
{{- with lookup "v1" "ConfigMap" "kube-public" "cluster-info" -}}
{{- $server := urlParse (index (fromYaml .data.kubeconfig).clusters 0).cluster.server -}}
- {name: KUBERNETES_SERVICE_HOST, value: {{ $server.hostname | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ regexFind "[0-9]+$" $server.host | quote }}}
{{- end -}}
{{- end -}}
