{{- /* By which volumes say whose they are. A class keeps the one that it was made with: those of before 0.2.0 have a name that no driver may have. */ -}}
{{- define "provisioner" -}}
{{- $class := lookup "storage.k8s.io/v1" "StorageClass" "" "local" -}}
{{- $class.provisioner | default "local-path.firstlight.internal" -}}
{{- end -}}
