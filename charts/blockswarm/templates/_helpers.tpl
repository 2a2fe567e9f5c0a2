{{/* The prefix of every object's name. Short enough for "-directory-0" and a controller's own suffixes. */}}
{{- define "blockswarm.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that select: no version among them, so that an upgrade does not replace pods for its own sake. */}}
{{- define "blockswarm.selectorLabels" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of the objects themselves. */}}
{{- define "blockswarm.labels" -}}
{{ include "blockswarm.selectorLabels" . }}
app.kubernetes.io/part-of: blockswarm
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* Labels of a pod: those that select, and the user's. */}}
{{- define "blockswarm.podLabels" -}}
{{ include "blockswarm.selectorLabels" . }}
app.kubernetes.io/part-of: blockswarm
{{- with .labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image reference; a digest wins over a tag. */}}
{{- define "blockswarm.image" -}}
{{- $registry := default .image.registry .root.Values.global.imageRegistry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .root.Chart.AppVersion .image.tag }}{{ end -}}
{{- end -}}

{{- define "blockswarm.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets | uniq }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "blockswarm.serviceAccountName" -}}
{{- $account := (index .root.Values .component).serviceAccount -}}
{{- if $account.name }}{{ $account.name }}
{{- else if $account.create }}{{ include "blockswarm.fullname" .root }}-{{ .component }}
{{- else }}default
{{- end -}}
{{- end -}}

{{/* gRPC target of the directory. */}}
{{- define "blockswarm.directory" -}}
{{- if .Values.directory.enabled -}}
dns:///{{ include "blockswarm.fullname" . }}-directory.{{ .Release.Namespace }}.svc:31340
{{- else -}}
{{ required "directory.target: name the gRPC target of a directory, or set directory.enabled=true" .Values.directory.target }}
{{- end -}}
{{- end -}}

{{- define "blockswarm.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "blockswarm.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Where a pod goes. Without an affinity of the user's: on different nodes, where there are enough. */}}
{{- define "blockswarm.placement" -}}
{{- $values := index .root.Values .component -}}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- with $values.affinity }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "blockswarm.selectorLabels" . | nindent 14 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* "true" where a part of `monitoring` is wanted. */}}
{{- define "blockswarm.monitored" -}}
{{- $wanted := toString .enabled -}}
{{- if or (eq $wanted "true") (and (eq $wanted "auto") (.root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}true{{- end -}}
{{- end -}}
