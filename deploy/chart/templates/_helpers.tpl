{{/* The image, one exact version everywhere. */}}
{{- define "multus.image" -}}
{{- $suffix := ternary "" "-thick" (eq .Values.mode "thin") -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s%s" .Chart.AppVersion $suffix) }}
{{- end }}

{{/* Of every container but hotplug's daemon. */}}
{{- define "multus.confined" -}}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Whether metrics are served, and not to everybody. */}}
{{- define "multus.protected" -}}
{{ and .Values.monitoring.enabled .Values.monitoring.protected }}
{{- end }}

{{/* The daemon's file: what the mode needs, with the user's keys laid over it. */}}
{{- define "multus.config" -}}
{{- $config := dict
  "cniConfigDir" "/host/etc/cni/net.d"
  "multusAutoconfigDir" "/host/etc/cni/net.d"
  "multusConfigFile" "auto"
  "socketDir" "/host/run/multus/"
  "logLevel" "verbose" -}}
{{- if eq .Values.mode "hotplug" }}{{ $_ := set $config "chrootDir" "/hostroot" }}{{ $_ := set $config "hotplug" true }}{{ end -}}
{{- if .Values.monitoring.enabled }}{{ $_ := set $config "metricsPort" .Values.monitoring.port }}{{ end -}}
{{- if eq (include "multus.protected" .) "true" }}
{{- $_ := set $config "metricsTLS" (dict "certFile" "/run/multus-metrics/tls.crt" "keyFile" "/run/multus-metrics/tls.key") }}
{{- $_ := set $config "metricsTokenReview" true }}
{{- end -}}
{{- with .Values.perNodeCertificate }}
{{- if .enabled }}{{ $_ := set $config "perNodeCertificate" (dict "enabled" true "bootstrapKubeconfig" .kubeconfig "certDir" "/run/multus-certificates" "certDuration" .duration) }}{{ end }}
{{- end -}}
{{- range $key, $value := .Values.config }}{{ $_ := set $config $key $value }}{{ end -}}
{{ toPrettyJson $config }}
{{- end }}

{{/* The thin entrypoint's arguments: a flag for each key of config. */}}
{{- define "multus.thinArgs" -}}
- --multus-conf-file=auto
- --skip-multus-binary-copy
{{- if ne .Values.hostPaths.cniConf "/etc/cni/net.d" }}
- --multus-kubeconfig-file-host={{ .Values.hostPaths.cniConf }}/multus.d/multus.kubeconfig
{{- end }}
{{- $flags := dict
  "allowedNamespaces" "allowed-namespaces"
  "allowedPlugins" "allowed-plugins"
  "binDir" "additional-bin-dir"
  "cleanupConfigOnExit" "cleanup-config-on-exit"
  "cniVersion" "cni-version"
  "forceCNIVersion" "force-cni-version"
  "globalNamespaces" "global-namespaces"
  "hostCniConfigDir" ""
  "isolateDefaultNetwork" "isolate-default-network"
  "logFile" "multus-log-file"
  "logFormat" "multus-log-format"
  "logLevel" "multus-log-level"
  "logToStderr" "multus-log-to-stderr"
  "multusMasterCNI" "multus-master-cni-file-name"
  "namespaceIsolation" "namespace-isolation"
  "overrideNetworkName" "override-network-name"
  "readinessindicatorfile" "readiness-indicator-file" }}
{{- range $key, $value := .Values.config }}
{{- if not (hasKey $flags $key) }}{{ fail (printf "config.%s: thin_entrypoint has no flag for this key; take mode thick" $key) }}{{ end }}
{{- with get $flags $key }}
- --{{ . }}={{ if kindIs "slice" $value }}{{ join "," $value }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
