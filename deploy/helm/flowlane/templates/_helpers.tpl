{{/* The name of what belongs to a release. */}}
{{- define "flowlane.name" -}}
{{- if contains "flowlane" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-flowlane" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* What selects the pods of a release. */}}
{{- define "flowlane.selector" -}}
app.kubernetes.io/name: flowlane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "flowlane.labels" -}}
{{ include "flowlane.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: flowlane-{{ .Chart.Version }}
{{- end }}

{{- define "flowlane.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag }}{{ end }}
{{- end }}

{{/* Files of the Secret: their group can read them, which is that of the pod. */}}
{{- define "flowlane.secrets" -}}
- name: secrets
  secret:
    secretName: {{ .root.Values.secret.name }}
    defaultMode: 0440
    items:
      {{- range .keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}

{{- define "flowlane.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "flowlane.container" -}}
image: {{ include "flowlane.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: secrets, mountPath: /run/secrets/flowlane, readOnly: true}
{{- end }}
